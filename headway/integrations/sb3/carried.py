"""The intrinsic reward that a model carries, so that `model.save` and `Algorithm.load` take it along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

ATTRIBUTE = "intrinsic_reward"
"""The model's attribute. Stable-Baselines3 saves every attribute that it does not know better."""


class Stateful(Protocol):
    """Whatever has a state."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""


class Carried:
    """Stands for a callback in the model's file: it is pickled as the state that the callback has at that moment.

    Args:
        callback: whose state it is.
    """

    def __init__(self, callback: Stateful) -> None:
        self.callback: Stateful | None = callback
        self._state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """The state of the callback, or what was loaded, with all tensors in main memory."""
        state: dict[str, Any] = on_cpu(self._state if self.callback is None else self.callback.state_dict())
        return state

    def __getstate__(self) -> dict[str, Any]:
        """What is saved: no callback, only its state."""
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What was saved."""
        self.callback = None
        self._state = state

    def __repr__(self) -> str:
        """Short: Stable-Baselines3 writes it into the model's file."""
        return f"Carried({self.state_dict().get('settings')})"


def on_cpu(value: Any) -> Any:
    """A copy of nested dictionaries and lists with tensors in main memory, so that any machine can load it."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, Mapping):
        return {key: on_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(on_cpu(item) for item in value)
    return value
