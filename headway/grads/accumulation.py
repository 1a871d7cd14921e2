"""Micro-batches whose gradients add up in `.grad` until the optimizer takes a step."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class Accumulation:
    """The micro-batches since the optimizer's last step, and what they have added to `.grad`.

    Args:
        parameters: the trained parameters by name.

    Attributes:
        count: how many there are.
        weight: the sum of what each has multiplied the gradient of its mean loss by.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        """Begin with none."""
        self._parameters = parameters
        self._start: dict[str, Tensor | None] = {}
        self._left: dict[str, int] = {}
        self.count = 0
        self.weight: Tensor | float = 0.0

    def begin(self) -> dict[str, Tensor | None]:
        """Copy the gradients as they are before a micro-batch.

        Micro-batches before a step that came early, as at the end of an epoch, are forgotten.
        """
        self.forget_if_zeroed()
        now = {name: None if p.grad is None else p.grad.clone() for name, p in self._parameters.items()}
        if not self.count:
            self._start = now
        return now

    def add(self, weight: Tensor | float) -> None:
        """Count a micro-batch whose gradients have arrived."""
        self.count += 1
        self.weight = self.weight + weight

    def hold(self) -> None:
        """Note what the gradients look like, since the step is still to come."""
        self._left = {name: p.grad._version for name, p in self._parameters.items() if p.grad is not None}

    def forget_if_zeroed(self) -> None:
        """Forget the micro-batches if their gradients are gone: the optimizer has taken its step with them."""
        if self.count and any(self._is_zeroed(name, version) for name, version in self._left.items()):
            self.clear()

    def _is_zeroed(self, name: str, version: int) -> bool:
        grad = self._parameters[name].grad
        return grad is None or (grad._version != version and not grad.to_dense().any())

    def gradients(self) -> dict[str, Tensor | None]:
        """What the micro-batches have added to the gradients, by parameter."""
        return {name: _added(p.grad, self._start.get(name)) for name, p in self._parameters.items()}

    def was_trained(self, name: str) -> bool:
        """Whether the first micro-batch has changed the gradient of a parameter."""
        grad, start = self._parameters[name].grad, self._start.get(name)
        if grad is None or self.count:
            return False
        return start is None or not grad.to_dense().equal(start.to_dense())

    def clear(self) -> None:
        """Begin anew, after a step."""
        self._start, self._left = {}, {}
        self.count, self.weight = 0, 0.0


def _added(grad: Tensor | None, start: Tensor | None) -> Tensor | None:
    return grad if start is None or grad is None else grad - start
