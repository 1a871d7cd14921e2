"""Micro-batches whose gradients add up in `.grad` until the optimizer takes a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, overload

import torch
from torch import Tensor

from headway.errors import ModelError, StateError
from headway.grads.persample import widened
from headway.grads.sharded import Sharding
from headway.grads.wrappers import Wrapper


class LossScaler(Protocol):
    """What the meter needs of a torch.amp.GradScaler."""

    @overload
    def scale(self, outputs: Tensor) -> Tensor: ...
    @overload
    def scale(self, outputs: Iterable[Tensor]) -> Iterable[Tensor]: ...


def scale_of(scaler: LossScaler | None, like: Tensor) -> Tensor | None:
    """The loss scale as a tensor, read without waiting for the device."""
    return None if scaler is None else scaler.scale(torch.ones((), device=like.device))


class Accumulation:
    """The micro-batches since the optimizer's last step, and what they have added to `.grad`.

    Attributes:
        steps: micro-batches for each step.
        count: how many there are.
        weight: the sum of what each has multiplied the gradient of its mean loss by.
        incomplete: a gradient was freed before it could be read.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], reduction: str, steps: int, sharding: Sharding | None = None
    ) -> None:
        self._parameters: Mapping[str, Any] = parameters if sharding is None else sharding.trained
        self._sharding = sharding
        self._reduction = reduction
        self.steps = steps
        self._start: dict[str, Tensor | None] = {}
        self._left: dict[str, int] = {}
        self._caught: dict[str, Tensor] = {}
        self._catch_all = False
        self._weights: tuple[tuple[int, torch.dtype, torch.device], Tensor, Tensor] | None = None
        self.count = 0
        self.weight: Tensor | float = 0.0
        self.incomplete = False

    @contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Run a micro-batch inside the block; after an error gradients are as they were before it.

        Micro-batches before a step that came early, as at the end of an epoch, are forgotten.
        """
        self._forget_if_zeroed()
        before = {name: None if p.grad is None else p.grad.clone() for name, p in self._parameters.items()}
        put_back_waiting = None if self._sharding is None else self._sharding.waiting()
        if not self.count:
            self._start = before
        try:
            yield
        except Exception:
            for name, grad in before.items():
                self._parameters[name].grad = grad
            if put_back_waiting is not None:
                put_back_waiting()
            self._caught = {}
            self.hold()
            raise

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Take gradients as they arrive, where a hook waits for them: an optimizer may use and free them at once."""
        handles = [
            p.register_hook(self._catch(name))
            for name, p in self._parameters.items()
            if self._catch_all or getattr(p, "_post_accumulate_grad_hooks", None)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _catch(self, name: str) -> Any:
        def hook(gradient: Tensor) -> None:
            dense = gradient.detach().to_dense()
            self._caught[name] = self._caught[name] + dense if name in self._caught else dense.clone()

        return hook

    def weights(self, losses: Tensor, scale: Tensor | None = None) -> Tensor:
        """The gradient at each loss: 1 / B or 1, divided by the micro-batches, times the loss scale."""
        kind = (losses.shape[0], losses.dtype, losses.device)
        if self._weights is None or self._weights[0] != kind:
            share = 1.0 if self._reduction == "sum" else 1.0 / losses.shape[0]
            weights = torch.full_like(losses.detach(), share / self.steps)
            self._weights = kind, weights, weights.to(widened(weights.dtype)).reciprocal()
        weights = self._weights[1]
        return weights if scale is None else weights * scale.to(weights)

    def inverse(self, weights: Tensor) -> Tensor:
        """One over the weights of a batch, in at least float32."""
        known = self._weights
        if known is not None and known[1] is weights:
            return known[2]
        return weights.to(widened(weights.dtype)).reciprocal()

    def add(self, samples: int, scale: Tensor | None) -> None:
        """Count a micro-batch whose gradients have arrived."""
        summed = samples if self._reduction == "sum" else 1.0
        self.count += 1
        self.weight = self.weight + (summed if scale is None else scale * summed)

    @property
    def is_full(self) -> bool:
        """Whether the optimizer's step is due."""
        return self.count >= self.steps

    def divisor(self, wrapper: Wrapper) -> Tensor | None:
        """What the gradient since the last step is the mean gradient times; None for 1."""
        factor = self.weight / self.steps * wrapper.scale
        if self._reduction == "mean" and isinstance(factor, float) and factor == 1.0:  # so it is on all ranks
            return None
        device = next(iter(self._parameters.values())).device
        return wrapper.mean_over_ranks(torch.as_tensor(factor, device=device))

    def hold(self) -> None:
        """Note what the gradients look like, since the step is still to come."""
        self._left = {name: _version(p) for name, p in self._parameters.items() if p.grad is not None}

    def check_between_steps(self) -> None:
        """Refuse to save a meter's state while micro-batches are being accumulated."""
        self._forget_if_zeroed()
        if self.count:
            raise StateError(
                f"expected a meter between optimizer steps, got one after micro-batch {self.count} of {self.steps}; "
                f"save it after the last, or after zero_grad()"
            )

    def _forget_if_zeroed(self) -> None:
        """Forget the micro-batches if their gradients are gone: the optimizer has taken its step with them."""
        if self.count and any(self._is_zeroed(name, version) for name, version in self._left.items()):
            self.clear()

    def _is_zeroed(self, name: str, version: int) -> bool:
        grad = self._parameters[name].grad
        return grad is None or (_version(self._parameters[name]) != version and not grad.to_dense().any())

    def note_freed(self, scored: Iterable[str], reduced: bool) -> None:
        """Look for gradients that somebody has used and freed before they could be read; from now on all are caught.

        Raises:
            ModelError: one is gone, and gradients are averaged over ranks, so that they are not final when they arrive.
        """
        if self._sharding is not None and not self._sharding.synchronises:
            return  # FSDP keeps them elsewhere
        gone = [name for name in scored if self._parameters[name].grad is None]
        if gone and reduced:
            raise ModelError(
                f"{gone[0]}: expected a gradient that is averaged over ranks and stays in .grad until the backward "
                f"pass has ended, got none; take the optimizer's step after the backward pass"
            )
        self.incomplete = self.incomplete or any(name not in self._caught for name in gone)
        self._catch_all = self._catch_all or self.incomplete

    def gradients(self, wrapper: Wrapper) -> dict[str, Tensor | None]:
        """What the micro-batches have added to the gradients, by parameter."""
        caught = {} if wrapper.is_parallel else self._caught  # with other ranks, what arrives is not yet final
        return {
            name: caught[name] if name in caught else _added(p.grad, self._start.get(name))
            for name, p in self._parameters.items()
        }

    def was_trained(self, name: str) -> bool:
        """Whether the first micro-batch has changed the gradient of a parameter."""
        # The gradient of a shard may wait until gradients are averaged over ranks.
        if name in self._caught or (not self.count and getattr(self._parameters[name], "waits", False)):
            return True
        grad, start = self._parameters[name].grad, self._start.get(name)
        if grad is None or self.count:
            return False
        return start is None or not grad.to_dense().equal(start.to_dense())

    def clear(self) -> None:
        """Begin anew, after a step."""
        self._start, self._left, self._caught = {}, {}, {}
        self.count, self.weight, self.incomplete = 0, 0.0, False


def _version(parameter: Any) -> int:
    """How often the gradient of a parameter, or of the one that a shard is of, was changed in place."""
    own = getattr(parameter, "grad_version", None)
    return parameter.grad._version if own is None else own


def _added(grad: Tensor | None, start: Tensor | None) -> Tensor | None:
    return grad if start is None or grad is None else grad - start
