"""Which protocol a run followed, in a word: the preset by name, or the preset nearest to it and what was changed.

Runs write their protocol out field by field, and the parts that read runs do not import the parts that make them.
So the presets stand here once more, as the data that they are in a stored run; a test compares them with
`headway.study.protocols.controlled.Protocol`. Those of the exploration study are in `exploration_presets`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from headway.analysis.exploration_presets import EXPLORATION_PRESETS
from headway.runs import RunSpec
from headway.runs.later import LATER, compared

PAPER: Mapping[str, Any] = {
    "beta": 0.999,
    "beta_v": None,
    "floor": 1e-8,
    "gate_level": None,
    "floor_unit": "sample",
    "bias_correction": False,
    "scored": "before-update",
    "dot_over": "all",
    "dot_scale": 1.0,
    "cosine_over": "all",
    "cosine_against": "m",
    "cosine_scale": 1.0,
    "norm": "l1",
    "norm_unit": "sample",
    "norm_all_scale": 0.0011,
    "norm_last_part": "layer",
    "norm_last_scale": 0.011,
    "delta_window": 1000,
    "delta_absolute": False,
    "delta_scale": 52000.0,
    "delta_empty": "skip",
    "uniform": "arms",
    "actor": "network",
    "actor_inputs": 4,
    "actor_hidden": 256,
    "actor_learning_rate": 1e-5,
    "actor_beta1": 0.99,
    "actor_beta2": 0.999,
    "entropy_weight": 0.05,
    "actor_scores": "raw",
    "curriculum_arm": "true-class",
    "centre_pixels": True,
    "replacement": False,
    "test_images": "train",
    "test_draw": "equal",
    "test_batches": 100,
    "shared_stream": False,
    "hidden": 256,
    "learning_rate": 1e-3,
    "batch_size": 256,
    "epochs": 100,
    "epochs_curriculum_mnist": 400,
    "epochs_used": 400,
    "curve_block": 1,
    "auc_weights": "test-count",
    "stars": "paper",
}
"""The paper's text."""

RELEASED: Mapping[str, Any] = {
    **PAPER,
    "floor_unit": "batch",
    "bias_correction": True,
    "dot_over": "tensor",
    "dot_scale": 5.0,
    "cosine_over": "tensor",
    "cosine_against": "m/v",
    "cosine_scale": 50.0,
    "norm": "l2-squared",
    "norm_unit": "batch",
    "norm_all_scale": 1e4,
    "norm_last_part": "bias",
    "norm_last_scale": 1e5,
    "delta_window": None,
    "delta_absolute": True,
    "delta_scale": 1e5,
    "delta_empty": "stop",
    "actor_inputs": None,
    "curriculum_arm": "scrambled-label",
    "test_draw": "uniform",
    "shared_stream": True,
    "epochs_curriculum_mnist": 500,
    "curve_block": 5,
    "stars": "released",
}
"""The authors' released code."""

DEMO: Mapping[str, Any] = {
    **RELEASED,
    "floor": 0.1,
    "floor_unit": "sample",
    "hidden": 64,
    "actor_hidden": 32,
    "actor_learning_rate": 5e-4,
    "batch_size": 64,
    "test_batches": 10,
    "epochs": 50,
    "norm_all_scale": 625.0,
    "norm_last_scale": 6250.0,
}
"""The released choices in small."""

PRESETS: Mapping[str, Mapping[str, Any]] = {"released": RELEASED, "paper": PAPER, "demo": DEMO}
"""All presets; of two that are equally near to a run's protocol the first gives it its name."""

NAMED_CHANGES = 3
"""A label names up to this many changes, besides former choices, and counts more than that."""
_COUNTED_CHANGES = " changes ("

PRESETS_OF: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"controlled": PRESETS, "doorkey": EXPLORATION_PRESETS}
"""The presets of each experiment."""


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
    base, changes = "unnamed", without_lengths(spec)
    if spec.experiment in PRESETS_OF:
        base, changes = _nearest(changes, PRESETS_OF[spec.experiment])
    usual = _usual(spec, base)
    changes |= {name: value for name, value in spec.params.items() if usual.get(name, _ABSENT) != value}
    return base, changes


def protocol_label(spec: RunSpec, with_former: bool = True) -> str:
    """Name the protocol that a run followed.

    Two runs of one experiment, dataset and condition have the same label exactly when nothing that their numbers
    depend on differs but their method and their seed: everything else that is not as the preset has it is part of
    the label. Epochs that do not count (beyond the protocol's `epochs_used`) make no difference, and a field that
    an older run does not know has not been changed.

    Args:
        spec: the run.
        with_former: False to leave out what `former_choices` gives.

    Returns:
        the name of a preset, such as "released" or "paper"; or, with changes, such as "released, floor=1e-06" or
        "released, 12 changes (1f3a9c)".
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


class _Absent:
    """Stands for a value that is not there; equal to no other."""


_ABSENT = _Absent()
_LENGTHS = ("epochs", "epochs_curriculum_mnist")


def _nearest(protocol: Mapping[str, Any], presets: Mapping[str, Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The preset with the fewest differences, and these."""
    found = {
        name: {field: value for field, value in protocol.items() if preset.get(field, _ABSENT) != value}
        for name, preset in presets.items()
    }
    name = min(found, key=lambda name: len(found[name]))
    return name, found[name]


def _usual(spec: RunSpec, base: str) -> dict[str, Any]:
    """The parameters that need no mention: those that follow from preset or protocol, or are named elsewhere."""
    known = {name: spec.params[name] for name in ("dataset", "preset") if name in spec.params}
    if spec.experiment == "controlled":
        return known | {"epochs": _usual_epochs(spec, PRESETS[base])}
    if spec.experiment == "doorkey":
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
    """The protocol's number of steps, rounded up to whole rollouts."""
    steps, envs, rollout = (protocol.get(name) for name in ("steps", "num_envs", "rollout_steps"))
    if isinstance(steps, int) and isinstance(envs, int) and isinstance(rollout, int) and envs * rollout > 0:
        return -(-steps // (envs * rollout)) * envs * rollout
    return None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "x".join(map(_text, value))
    # all digits: two values that differ must never share a label
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
