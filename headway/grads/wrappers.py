"""Wrappers that a model may come in, and whether it is still the same model."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from headway.errors import ModelError
from headway.grads.registry import is_sharded
from headway.grads.sharded import Sharding


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def trainable_parameters(model: nn.Module, sharding: Sharding | None = None) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name; sharded ones as the optimizer sees them.

    Raises:
        ModelError: there are none, or one that cannot be scored.
    """
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = found if sharding is None else {name: sharding.at_rest(p) for name, p in found.items()}
    if not found:
        raise ModelError(
            f"expected a model with trainable parameters, got {type(model).__name__} without any; "
            f"set requires_grad on what is to be trained"
        )
    for name, parameter in found.items():
        if isinstance(parameter, UninitializedParameter):
            raise ModelError(f"{name}: expected an initialised parameter, got a lazy one; run the model once first")
        if parameter.is_complex():
            raise ModelError(
                f"{name}: expected a real parameter, got {parameter.dtype}; keep its real and imaginary part in a "
                f"real parameter and join them in the forward pass with torch.view_as_complex"
            )
    return found


def accelerator_steps() -> int:
    """Micro-batches per optimizer step, as accelerate's Accelerator in this process has them; 1 without one."""
    state = sys.modules.get("accelerate.state")
    if state is None or not state.GradientState._shared_state:
        return 1
    return int(state.GradientState().num_steps)


class Wrapper:
    """The DistributedDataParallel around a model, or what shards it, if there is one."""

    def __init__(self, model: nn.Module, sharding: Sharding | None = None) -> None:
        self._sharding = sharding
        while isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        self._parallel = model if isinstance(model, nn.parallel.DistributedDataParallel) else None

    @property
    def is_parallel(self) -> bool:
        """Whether gradients may be averaged over ranks as they arrive; the wrapper may have come after the meter."""
        if self._parallel is not None or self._sharding is not None:
            return True
        return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def check_first_pass(self) -> None:
        """Refuse a first backward pass that fills no gradients, where the first one decides how they are averaged.

        Raises:
            ModelError: the wrapper was made with static_graph=True.
        """
        if self._parallel is not None and self._parallel.static_graph:
            raise ModelError(
                "expected a first batch that trains, got another one (score(), or verify=True) in a "
                "DistributedDataParallel with static_graph=True, which would never average gradients again; call "
                "backward() first, without verify"
            )

    @property
    def synchronises(self) -> bool:
        """Whether gradients are those of all ranks after the backward pass: not under `no_sync()`."""
        if self._sharding is not None:
            return self._sharding.synchronises
        return self._parallel is None or bool(self._parallel.require_backward_grad_sync)

    @property
    def scale(self) -> float:
        """What the mean gradient over ranks is multiplied by in `.grad`."""
        return 1.0 if self._sharding is None else self._sharding.scale

    def mean_over_ranks(self, number: Tensor) -> Tensor:
        """The mean of a number over the ranks, on the number's device and without a wait of the host."""
        if self._sharding is not None:
            return self._sharding.mean(number)
        if self._parallel is None:
            return number
        total, ranks = number.clone(), self._parallel.process_group
        dist.all_reduce(total, group=ranks)
        return total / dist.get_world_size(ranks)


class Structure:
    """The modules and parameters of a model, to notice quickly when they change."""

    def __init__(self, model: nn.Module, sharding: Sharding | None = None) -> None:
        self._sharding = sharding
        # What each module holds, kept alive, so that no other object gets its id.
        self._slots: list[tuple[dict[str, Any], list[Any], list[int]]] = []
        for module in model.modules():
            for slots in (module._modules, module._parameters):
                kept = self._at_rest(slots.values())
                self._slots.append((slots, kept, [*map(id, kept)]))
        self._parameters = self._at_rest(model.parameters())
        self._trained = [parameter.requires_grad for parameter in self._parameters]

    def check_unchanged(self, model: nn.Module, trainable: Mapping[str, nn.Parameter]) -> None:
        """Refuse a model whose trainable parameters are not those that it had.

        Raises:
            ModelError: they differ; the message names some.
        """
        if self._is_unchanged():
            return
        if self._sharding is None and any(is_sharded(module) for module in model.modules()):
            raise ModelError(
                "expected a model that was sharded before the meter was made, got fully_shard after it; call detach(), "
                "and make the meter after fully_shard"
            )
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        now = dict(zip(trained, self._at_rest(trained.values()), strict=True))
        changed = [name for name in {**now, **trainable} if now.get(name) is not trainable.get(name)]
        if changed:
            raise ModelError(
                f"expected the model that the meter was attached to, got one whose trainable parameters differ: "
                f"{', '.join(changed[:5])}; call detach(), make a new meter, and give it this one's state_dict() with "
                f"load_state_dict(state, strict=False)"
            )

    def _is_unchanged(self) -> bool:
        """Whether no module or parameter was added, removed, replaced, frozen or unfrozen."""
        for slots, _, before in self._slots:  # runs with each batch
            if [*map(id, self._at_rest(slots.values()))] != before:
                return False
        return [parameter.requires_grad for parameter in self._parameters] == self._trained

    def _at_rest(self, held: Iterable[Any]) -> list[Any]:
        """What a module holds, with sharded parameters as they are between forward passes."""
        if self._sharding is None:
            return [*held]
        return [self._sharding.at_rest(each) for each in held]
