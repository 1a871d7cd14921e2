"""Reductions that several signals want of one pass: put together before it, and handed out after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from headway.grads.passes import Pass
from headway.grads.persample import Reduction

Plans: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Reduction]]]
"""Signal -> the signal's own key -> parameter -> reduction."""


class Together(Mapping[str, Tensor]):
    """Numbers by parameter that are the rows of one tensor, so that they can be added up at once.

    Attributes:
        rows: [parameters, B].
    """

    def __init__(self, names: Sequence[str], rows: Tensor) -> None:
        self.rows = rows
        self._places = {name: place for place, name in enumerate(names)}

    def __getitem__(self, name: str) -> Tensor:
        return self.rows[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def merged(plans: Plans) -> dict[str, list[Reduction]]:
    """All reductions of each parameter, in the order of the signals."""
    plan: dict[str, list[Reduction]] = {}
    for wanted in plans.values():
        for by_parameter in wanted.values():
            for name, reduction in by_parameter.items():
                plan.setdefault(name, []).append(reduction)
    return plan


def own_gradients(current: Pass, plan: Mapping[str, Sequence[Reduction]], inverse: Tensor) -> Tensor:
    """Reductions of the samples' own gradients: a row [B] for each, in the order of the plan.

    `inverse` undoes the weights that the losses were given [B].
    """
    found = [
        value if value.dtype == inverse.dtype and value.device == inverse.device else value.to(inverse)
        for name, reductions in plan.items()
        # a parameter without results took no part in this batch
        for value in current.results.get(name) or [torch.zeros_like(inverse)] * len(reductions)
    ]
    rows = torch.stack(found) * inverse
    kinds = [reduction.kind for reductions in plan.values() for reduction in reductions]
    if "sq" not in kinds:
        return rows
    return torch.stack([row * inverse if kind == "sq" else row for row, kind in zip(rows, kinds, strict=True)])


def by_parameter(rows: Tensor, plan: Mapping[str, Sequence[Reduction]]) -> dict[str, list[Tensor]]:
    """The rows that `own_gradients` gave, by parameter."""
    left = iter(rows.unbind())
    return {name: [next(left) for _ in reductions] for name, reductions in plan.items()}


def handed_out(
    rows: Tensor | None, plan: Mapping[str, Sequence[Reduction]], plans: Plans
) -> dict[str, dict[str, Mapping[str, Tensor]]]:
    """What a merged plan gave, by signal, key and parameter; values beyond the plans are nobody's."""
    if rows is None:
        return {signal: {key: {} for key in wanted} for signal, wanted in plans.items()}
    if len(rows) == len(plan) and len(plans) == 1:
        ((signal, wanted),) = plans.items()
        if len(wanted) == 1:
            return {signal: {key: Together(list(plan), rows) for key in wanted}}
    left = {name: iter(found) for name, found in by_parameter(rows, plan).items()}
    return {
        signal: {key: {name: next(left[name]) for name in names} for key, names in wanted.items()}
        for signal, wanted in plans.items()
    }
