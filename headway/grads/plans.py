"""Reductions that several signals want of one pass: put together before it, and handed out after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from headway.grads.passes import Pass
from headway.grads.persample import Reduction

Plans: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Reduction]]]
"""Signal -> the signal's own key -> parameter -> reduction."""


def merged(plans: Plans) -> dict[str, list[Reduction]]:
    """All reductions of each parameter, in the order of the signals."""
    plan: dict[str, list[Reduction]] = {}
    for wanted in plans.values():
        for by_parameter in wanted.values():
            for name, reduction in by_parameter.items():
                plan.setdefault(name, []).append(reduction)
    return plan


def handed_out(values: Mapping[str, Sequence[Tensor]], plans: Plans) -> dict[str, dict[str, dict[str, Tensor]]]:
    """What a merged plan gave, by signal, key and parameter; values beyond the plans are nobody's."""
    left = {name: iter(found) for name, found in values.items()}
    return {
        signal: {key: {name: next(left[name]) for name in by_parameter} for key, by_parameter in wanted.items()}
        for signal, wanted in plans.items()
    }


def own_gradients(current: Pass, plan: Mapping[str, Sequence[Reduction]], weights: Tensor) -> dict[str, list[Tensor]]:
    """Reductions of the samples' own gradients: without the weights that the losses were given."""
    wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
    places = [(name, reduction.kind) for name, reductions in plan.items() for reduction in reductions]
    found = [
        value.to(wide)
        for name, reductions in plan.items()
        # a parameter without results took no part in this batch
        for value in current.results.get(name) or [torch.zeros_like(wide)] * len(reductions)
    ]
    inverse = wide.reciprocal()
    scaled = torch.stack(found) * inverse
    values: dict[str, list[Tensor]] = {name: [] for name in plan}
    for (name, kind), value in zip(places, scaled.unbind(), strict=True):
        values[name].append(value * inverse if kind == "sq" else value)
    return values
