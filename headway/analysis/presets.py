"""Which protocol a run followed, in a word: the preset by name, or the preset nearest to it and what was changed.

Runs write their protocol out field by field, and the parts that read runs do not import the parts that make them.
So the presets stand here once more, as the data that they are in a stored run; a test compares them with
`headway.experiments.protocol.Protocol`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from headway.runs import RunSpec

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
    "norm_all_scale": 1.0,
    "norm_last_part": "layer",
    "norm_last_scale": 1.0,
    "delta_window": 1000,
    "delta_absolute": False,
    "delta_scale": 1.0,
    "actor": "network",
    "actor_inputs": 4,
    "actor_hidden": 256,
    "actor_learning_rate": 1e-5,
    "actor_beta1": 0.99,
    "actor_beta2": 0.999,
    "entropy_weight": 0.05,
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
"""A label names up to this many changes, and counts more than that."""

_DOORKEY_DEFAULTS = {"env_id": "MiniGrid-DoorKey-8x8-v0", "steps": 1465 * 2048}


def protocol_label(spec: RunSpec) -> str:
    """Name the protocol that a run followed.

    Two runs of one experiment, dataset and condition have the same label exactly when nothing but their method and
    their seed differs: every other parameter that is not as the preset has it is part of the label.

    Returns:
        "released", "paper" or "demo"; or, with changes, such as "released, floor=1e-06" or
        "released, 12 changes (1f3a9c)".
    """
    if spec.protocol:
        base, changes = _nearest(spec.protocol)
    else:
        base, changes = str(spec.params.get("preset", "")) or "unnamed", {}
    changes |= _changed_params(spec)
    if not changes:
        return base
    words = [f"{name}={_text(value)}" for name, value in sorted(changes.items())]
    if len(words) > NAMED_CHANGES:
        digest = hashlib.sha256("\n".join(words).encode()).hexdigest()[:6]
        words = [f"{len(words)} changes ({digest})"]
    return ", ".join([base, *words])


class _Absent:
    """Stands for a field that a protocol does not have."""

    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _nearest(protocol: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The preset with the fewest differences, and these."""
    found = {name: _differences(protocol, preset) for name, preset in PRESETS.items()}
    name = min(found, key=lambda name: len(found[name]))
    return name, found[name]


def _differences(protocol: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    names = protocol.keys() | preset.keys()
    values = {name: protocol.get(name, _ABSENT) for name in names}
    return {name: value for name, value in values.items() if preset.get(name, _ABSENT) != value}


def _changed_params(spec: RunSpec) -> dict[str, Any]:
    """The parameters, other than the dataset, that are not what the protocol would make them."""
    expected: dict[str, Any] = {"dataset": spec.params.get("dataset"), "preset": spec.params.get("preset")}
    if spec.experiment == "doorkey":
        expected |= _DOORKEY_DEFAULTS
    long = spec.params.get("dataset") == "mnist" and spec.condition == "curriculum"
    expected["epochs"] = spec.protocol.get("epochs_curriculum_mnist" if long else "epochs", _ABSENT)
    return {name: value for name, value in spec.params.items() if expected.get(name, _ABSENT) != value}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
