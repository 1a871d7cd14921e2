"""Which protocol a run followed, in a word: the preset by name, or the preset nearest to it and what was changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from headway.runs import RunSpec
from headway.runs.spec import LATER, compared
from headway.study.protocols.arena import ArenaProtocol
from headway.study.protocols.classification import Protocol
from headway.study.protocols.fields import Fields, whole_rollouts
from headway.study.protocols.minigrid import ExplorationProtocol
from headway.study.protocols.mixtures import MixtureProtocol

STANDARD = "released"
"""The preset that made the published figures."""
_PROTOCOLS: tuple[type[Fields], ...] = (Protocol, ExplorationProtocol, MixtureProtocol, ArenaProtocol)
PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    protocol.experiment: {
        name: protocol.named(name).to_dict() for name in sorted(protocol.presets(), key=lambda name: name != STANDARD)
    }
    for protocol in _PROTOCOLS
}
"""The presets of each experiment; of two that are equally near to a run's protocol the first gives it its name."""
NAMED_CHANGES = 3
"""A label names up to this many changes, besides former choices, and counts more than that."""
_COUNTED_CHANGES = " changes ("


def protocol_changes(spec: RunSpec) -> tuple[str, list[str]]:
    """The preset that a run's protocol is nearest to, and what is not as the preset has it, such as "floor=1e-06"."""
    base, changes = _changes(spec)
    return base, [f"{name}={_text(value)}" for name, value in sorted(changes.items())]


def former_choices(spec: RunSpec) -> tuple[str, ...]:
    """What a run does as runs did before the preset came to do it otherwise, such as "uniform=actor"."""
    later = LATER.get(spec.experiment, {})
    _, changes = _changes(spec)
    return tuple(
        f"{name}={_text(value)}"
        for name, value in sorted(changes.items())
        if name in later and value == later[name].former
    )


def _changes(spec: RunSpec) -> tuple[str, dict[str, Any]]:
    """The preset with the fewest differences, and these; also parameters that do not follow from it."""
    fields = without_lengths(spec)
    presets = PRESETS.get(spec.experiment, {"unnamed": {}})
    differences = {name: _differing(fields, preset) for name, preset in presets.items()}
    base = min(differences, key=lambda name: len(differences[name]))
    return base, differences[base] | _differing(spec.params, _usual(spec, presets[base]))


def _differing(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in usual or usual[name] != value}


def protocol_label(spec: RunSpec, with_former: bool = True) -> str:
    """Name the protocol that a run followed.

    Two runs of one experiment, dataset and condition have the same label exactly when nothing that their numbers
    depend on differs but their method and their seed: everything else that is not as the preset has it is part of
    the label. Epochs that do not count (beyond the protocol's `epochs_used`) make no difference, and a field that
    an older run does not know has not been changed.
    """
    base, words = protocol_changes(spec)
    former = former_choices(spec)
    words = [word for word in words if with_former or word not in former]
    if not words:
        return base
    if len(words) - (len(former) if with_former else 0) > NAMED_CHANGES:
        digest = hashlib.sha256("\n".join(words).encode()).hexdigest()[:6]
        words = [f"{len(words)}{_COUNTED_CHANGES}{digest})"]
    return ", ".join([base, *words])


def nearest_first(labels: Iterable[str]) -> list[str]:
    """Labels of protocols, presets first, then those with few changes, and last those that only count them."""
    return sorted(labels, key=lambda label: (_COUNTED_CHANGES in label, label.count(", "), label))


def without_lengths(spec: RunSpec) -> dict[str, Any]:
    """What of the protocol tells runs apart, without the lengths of controlled runs, which their parameters give."""
    lengths = _LENGTHS if spec.experiment == "controlled" else ()
    fields = compared(spec.experiment, spec.method, spec.protocol)
    return {field: value for field, value in fields.items() if field not in lengths}


def counted_epochs(spec: RunSpec) -> Any:
    """How many epochs of a run its numbers depend on: those that it has, up to the protocol's `epochs_used`."""
    return _counted(spec.params.get("epochs"), spec.protocol.get("epochs_used"))


_LENGTHS = ("epochs", "epochs_curriculum_mnist")


def _usual(spec: RunSpec, preset: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that need no mention: those that follow from preset or protocol, or are named elsewhere."""
    known = {name: spec.params[name] for name in ("dataset", "preset") if name in spec.params}
    if spec.experiment == "controlled":
        return known | {"epochs": _usual_epochs(spec, preset)}
    if spec.experiment in PRESETS:
        return known | {"env_id": spec.protocol.get("env_id"), "steps": _usual_steps(spec.protocol)}
    return known


def _usual_epochs(spec: RunSpec, preset: Mapping[str, Any]) -> Any:
    """The number of epochs, whatever it is, if as many count as the preset says; otherwise the preset's."""
    long = spec.params.get("dataset") == "mnist" and spec.condition == "curriculum"
    usual = preset["epochs_curriculum_mnist" if long else "epochs"]
    same = counted_epochs(spec) == _counted(usual, spec.protocol.get("epochs_used"))
    return spec.params.get("epochs") if same else usual


def _counted(length: Any, used: Any) -> Any:
    return min(length, used) if isinstance(length, int) and isinstance(used, int) else length


def _usual_steps(protocol: Mapping[str, Any]) -> int | None:
    """The protocol's number of steps, rounded up to whole rollouts where there are some."""
    steps, envs, rollout = protocol.get("steps"), protocol.get("num_envs", 1), protocol.get("rollout_steps", 1)
    if isinstance(steps, int) and isinstance(envs, int) and isinstance(rollout, int) and envs * rollout > 0:
        return whole_rollouts(steps, envs, rollout)
    return None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "x".join(map(_text, value))
    # all digits: two values that differ must never share a label
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
