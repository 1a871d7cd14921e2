"""What intrinsic rewards are paid for: transitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from headway.errors import MethodError
from headway.rl.packing import pack


@dataclass(frozen=True)
class Transitions:
    """N transitions, in any order. Arrays are taken as tensors; nothing is copied without need.

    Attributes:
        obs: observations [N, H, W, C] or [N, D], as the environment gave them; a dictionary of such for a Dict space.
        actions: [N] for discrete actions, [N, A] for others.
        next_obs: what followed, shaped as `obs`; where an episode ended its last observation, never the first of
            the next (see `headway.rl.episodes`).
        terminated: where the episode ended for good [N], or None if nobody asks.
        noise_on: where the next observation carried noise [N], or None.
    """

    obs: Tensor
    actions: Tensor
    next_obs: Tensor
    terminated: Tensor | None = None
    noise_on: Tensor | None = None

    def __post_init__(self) -> None:
        """Take arrays as tensors, and check that the lengths agree.

        Raises:
            MethodError: they do not, or there is no transition.
        """
        for name, value in self._given():
            object.__setattr__(self, name, torch.as_tensor(pack(value)))
        lengths = {name: len(value) if value.dim() else None for name, value in self._given()}
        if len(set(lengths.values())) != 1 or None in lengths.values():
            found = ", ".join(f"{name} {list(value.shape)}" for name, value in self._given())
            raise MethodError(f"expected the same number of observations, actions and the rest, got {found}")
        if not len(self):
            raise MethodError("expected at least one transition, got none")
        if self.obs.shape != self.next_obs.shape:
            raise MethodError(
                f"expected next_obs of shape {list(self.obs.shape)}, as obs, got {list(self.next_obs.shape)}"
            )

    def __len__(self) -> int:
        """N."""
        return len(self.obs)

    def __getitem__(self, index: Any) -> Transitions:
        """Those transitions that a slice, a mask [N] or indices pick."""
        return Transitions(**{name: value[index] for name, value in self._given()})

    def to(self, device: str | torch.device) -> Transitions:
        """The same on a device."""
        return Transitions(**{name: value.to(device) for name, value in self._given()})

    def _given(self) -> Iterator[tuple[str, Tensor]]:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                yield each.name, value
