"""Models that `torch.distributed.fsdp.fully_shard` has sharded (FSDP2).

Activations and the gradients at outputs belong to the rank that has the samples. What a score needs from the other
ranks are its weights. They lie as shards beside those of the parameters, are gathered for a layer when its backward
pass needs them, and are dropped after it. The moments take the gradient that FSDP has averaged and scattered.

FSDP exchanges two tensors for each parameter: the sharded one, a DTensor that the optimizer sees, and the whole one,
which stands in the module while it runs and is a leaf of the graph. The engine works on the whole one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from headway.errors import ModelError, SignalError, StateError
from headway.grads.passes import Contribution, Pass
from headway.grads.persample import Reduction, Sum
from headway.grads.registry import is_sharded


def find_sharding(model: nn.Module, verify: bool = False) -> Sharding | None:
    """How a model is sharded; None if it is not. All ranks have to ask.

    Args:
        model: the model.
        verify: scores shall be compared with autograd one sample at a time.

    Raises:
        ModelError: it is sharded in a way that cannot be scored, or that cannot be compared so.
    """
    for path, module in model.named_modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            where = f" in {path}" if path else ""
            raise ModelError(
                f"expected whole parameters, or shards of fully_shard, got FullyShardedDataParallel{where}; use "
                f"torch.distributed.fsdp.fully_shard (FSDP2), or DistributedDataParallel"
            )
    if any(is_sharded(module) for module in model.modules()):
        if verify:
            raise ModelError("expected whole parameters with verify=True, got shards; pass check='always' instead")
        return Sharding(model)
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "placements"):
            raise _not_fsdp(name)
    return None


def _not_fsdp(name: str) -> ModelError:
    return ModelError(
        f"{name}: expected a parameter that is whole, or that fully_shard alone has sharded, got another DTensor "
        f"(tensor parallelism?); use fully_shard or DistributedDataParallel without it"
    )


class Shard:
    """This rank's shard of a parameter, as far as gradients are concerned.

    Attributes:
        device: where it is.
    """

    def __init__(self, own: Any) -> None:
        """Keep what FSDP knows of the parameter."""
        self._own = own
        self.device: torch.device = own.sharded_param.device

    @property
    def grad(self) -> Tensor | None:
        """The shard of the gradient: `.grad` of the sharded parameter, as a plain tensor."""
        grad = self._own.sharded_param.grad
        return None if grad is None else grad._local_tensor

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        self._own.sharded_param.grad = None if grad is None else self._own.to_sharded_dtensor(grad)

    @property
    def grad_version(self) -> int:
        """The version of the DTensor: what is done to it in place does not count for the tensor inside."""
        version: int = self._own.sharded_param.grad._version
        return version

    @property
    def waits(self) -> bool:
        """Whether a gradient waits, whole, for a pass that synchronises."""
        whole = getattr(self._own, "_unsharded_param", None)
        return self._own.unsharded_accumulated_grad is not None or (whole is not None and whole.grad is not None)


class Sharding:
    """The shards of a model, and what its ranks do together. Every method that communicates has to run on all ranks.

    Attributes:
        rank: which process this is.
        trained: this rank's shards of the trained parameters, by name.
        largest: the most bytes of weights that were gathered at once.
    """

    def __init__(self, model: nn.Module) -> None:
        """Look at the shards. Before the first forward pass parameters are gathered once, to make the whole ones.

        Raises:
            ModelError: see `find_sharding`.
        """
        self._modules: list[Any] = [module for module in model.modules() if is_sharded(module)]
        self._groups = list(dict.fromkeys(group for module in self._modules for group in _groups(module)))
        all_own = [own for group in self._groups for own in group.fsdp_params]
        by_id = {id(getattr(own, key, None)): own for own in all_own for key in ("sharded_param", "_unsharded_param")}
        named = dict(model.named_parameters())
        self._own = {name: by_id[id(p)] for name, p in named.items() if id(p) in by_id}
        self._refuse(named)
        for module in self._modules:
            if any(not hasattr(own, "_unsharded_param") for group in _groups(module) for own in group.fsdp_params):
                module.unshard()
                module.reshard()
        self._whole = {id(own.sharded_param): own._unsharded_param for own in all_own}
        self._shards = {id(own._unsharded_param): own.sharded_param for own in all_own}
        first = next(iter(self._own.values())).sharded_param
        self._mesh, self._device = first.device_mesh, first.device
        self._over = [dim for dim, kind in enumerate(first.placements) if kind.is_shard()]
        self._shards_each = math.prod(self._mesh.size(dim) for dim in self._over)
        self.rank = dist.get_rank()
        self.trained = {name: Shard(own) for name, own in self._own.items() if named[name].requires_grad}
        self.largest = 0

    def _refuse(self, named: Mapping[str, Tensor]) -> None:
        for name, parameter in named.items():
            own = self._own.get(name)
            if own is None and hasattr(parameter, "placements"):
                raise _not_fsdp(name)
            if own is None and parameter.requires_grad:
                raise ModelError(
                    f"{name}: expected every trained parameter to be sharded, got a whole one, whose gradient FSDP "
                    f"does not average; call fully_shard on the model too, after its parts, or freeze the parameter"
                )
            if own is None:
                continue
            if own.is_dtensor:
                raise _not_fsdp(name)
            if not any(kind.is_shard() for kind in own.sharded_param.placements):
                raise ModelError(f"{name}: expected a shard, got a replica; use DistributedDataParallel for replicas")
            if own.sharded_param.is_meta:
                raise ModelError(
                    f"{name}: expected an initialised parameter, got one on the meta device; call to_empty() first"
                )
            if own.offload_to_cpu:
                raise ModelError(f"{name}: expected shards on the device, got CPUOffloadPolicy; shard without it")
            if own.post_forward_mesh_info not in (None, own.mesh_info):
                raise ModelError(
                    f"{name}: expected reshard_after_forward to be True or False, got a number; pass one of these"
                )
        meshes = {own.sharded_param.device_mesh for own in self._own.values()}
        if len(meshes) != 1:
            raise ModelError(f"expected shards over one device mesh, got {len(meshes)}; use one mesh for all modules")

    # Parameters

    def in_use(self, parameter: Tensor) -> Any:
        """The tensor that stands in a parameter's place while its module runs."""
        return self._whole.get(id(parameter), parameter)

    def at_rest(self, parameter: Any) -> Any:
        """The parameter that a tensor stands for while its module runs."""
        return self._shards.get(id(parameter), parameter)

    @contextmanager
    def gathered_parameters(self, names: Sequence[str]) -> Iterator[None]:
        """Have some parameters whole outside of their modules' passes."""
        wanted = {id(self._own[name]) for name in names}
        modules = [
            module
            for module in self._modules
            if any(id(own) in wanted for group in _groups(module) for own in group.fsdp_params)
        ]
        for module in modules:
            module.unshard()
        try:
            yield
        finally:
            for module in modules:
                module.reshard()

    # Tensors beside the parameters

    def local(self, tensor: Tensor) -> Tensor:
        """This rank's shard of a tensor that may be sharded."""
        local: Tensor = getattr(tensor.detach(), "_local_tensor", tensor)
        return local

    def total(self, number: Tensor) -> Tensor:
        """The sum of a tensor over the ranks that share the parameters among them."""
        return self._sum(number, self._over)

    def spread(self, name: str, shard: Tensor) -> Tensor:
        """A shard beside that of a parameter as the DTensor that it is a part of."""
        from torch.distributed.tensor import DTensor

        like = self._own[name].sharded_param
        if shard.shape != like._local_tensor.shape:
            raise SignalError(
                f"{name}: expected the shard of a weight, shape {list(like._local_tensor.shape)}, got shape "
                f"{list(shard.shape)}; make weights of the moments, or of scope.parameters as DTensors"
            )
        return DTensor.from_local(
            shard, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )

    def part(self, name: str, tensor: Tensor) -> Tensor:
        """This rank's shard of a tensor beside a parameter, whole or a DTensor."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        like = self._own[name].sharded_param
        if not isinstance(tensor, DTensor):
            tensor = distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
        elif tensor.device_mesh != like.device_mesh or tensor.placements != like.placements:
            raise StateError(
                f"{name}: expected a DTensor with placements {like.placements}, got {tensor.placements}; load it with "
                f"torch.distributed.checkpoint, or give a whole tensor"
            )
        return self.local(tensor)

    def gathered(self, plan: Mapping[str, Sequence[Reduction]]) -> dict[str, list[Reduction]]:
        """Reductions by parameter with whole weights in the place of shards."""
        whole: dict[int, Tensor] = {}
        for name, reductions in plan.items():
            for reduction in reductions:
                if reduction.weight is not None and id(reduction.weight) not in whole:
                    whole[id(reduction.weight)] = self._gather(name, reduction.weight)
        self.largest = max(self.largest, sum(tensor.nbytes for tensor in whole.values()))
        return {
            name: [r if r.weight is None else Reduction(r.kind, whole[id(r.weight)]) for r in reductions]
            for name, reductions in plan.items()
        }

    def _gather(self, name: str, weight: Tensor) -> Tensor:
        spread: Any = weight if hasattr(weight, "placements") else self.spread(name, weight)
        whole: Tensor = spread.full_tensor()
        return whole

    def scattered(self, name: str, whole: Tensor | None) -> Tensor:
        """This rank's shard of what FSDP makes of a gradient, flat and whole, that each rank has; None is zero."""
        from torch.distributed.tensor import DTensor, Partial

        like = self._own[name].sharded_param
        if whole is None:
            whole = torch.zeros(like.shape, dtype=torch.promote_types(like.dtype, torch.float32), device=self._device)
        own = whole.view(like.shape) / self.divisor
        terms = DTensor.from_local(own, like.device_mesh, [Partial() for _ in like.placements], run_check=False)
        return self.local(terms.redistribute(placements=like.placements))

    # Gradients

    @property
    def synchronises(self) -> bool:
        """Whether gradients are those of all ranks after a backward pass; set_requires_gradient_sync decides."""
        return all(group.reduce_grads and group.all_reduce_grads for group in self._groups)

    @property
    def divisor(self) -> float:
        """By what FSDP divides the sum of the ranks' gradients: the number of ranks, unless it was told."""
        told = {group.gradient_divide_factor for group in self._groups}
        if len(told) > 1:
            raise ModelError(
                f"expected one gradient divide factor for all modules, got {sorted(map(str, told))}; set the same"
            )
        return float(told.pop() or self._mesh.size())

    @property
    def scale(self) -> float:
        """What the mean gradient over ranks is multiplied by in `.grad`."""
        return self._mesh.size() / self.divisor

    def mean(self, number: Tensor) -> Tensor:
        """The mean of a number over all ranks."""
        return self._sum(number, range(self._mesh.ndim)) / self._mesh.size()

    def gradients(self, losses: Tensor, weights: Tensor | None = None, retain_graph: bool = True) -> dict[str, Tensor]:
        """This rank's shards of the gradient of some losses, as FSDP averages it; `.grad` stays as it is.

        Args:
            losses: any losses with a graph.
            weights: the gradient at each loss; None for a single loss.
            retain_graph: as in `Tensor.backward`.
        """
        with self._set_aside():
            losses.backward(weights, retain_graph=retain_graph)
            return {name: shard.grad for name, shard in self.trained.items() if shard.grad is not None}

    @contextmanager
    def _set_aside(self) -> Iterator[None]:
        """Let a backward pass fill `.grad` with its own gradient, averaged, without the hooks on the parameters."""
        places: list[tuple[Any, str, Any]] = []
        for group in self._groups:
            places += [(group, name, True) for name in ("reduce_grads", "all_reduce_grads")]
            places.append((group, "_partial_reduce_output", None))
            for own in group.fsdp_params:
                places += [(own, "unsharded_accumulated_grad", None), (own._unsharded_param, "grad", None)]
                places += [(own.sharded_param, "grad", None)]
                if getattr(own.sharded_param, "_post_accumulate_grad_hooks", None):
                    places.append((own.sharded_param, "_post_accumulate_grad_hooks", None))
        before = [getattr(owner, name) for owner, name, _ in places]
        for owner, name, value in places:
            setattr(owner, name, value)
        try:
            yield
        finally:
            for (owner, name, _), value in zip(places, before, strict=True):
                setattr(owner, name, value)

    # Ranks

    def _sum(self, number: Tensor, dims: Sequence[int]) -> Tensor:
        total = number.detach().to(self._device, copy=True)
        for dim in dims:
            dist.all_reduce(total, group=self._mesh.get_group(dim))
        return total

    def lengths(self, lengths: Tensor) -> Tensor:
        """The lengths of vectors of which each rank has a shard, from those of the shards."""
        replicas = self._mesh.size() / self._shards_each
        return (self._sum(lengths.square(), range(self._mesh.ndim)) / replicas).sqrt().to(lengths)

    def count(self, number: int) -> int:
        """The sum of a whole number over all ranks."""
        return int(self._sum(torch.tensor(number), range(self._mesh.ndim)))

    def any(self, flag: bool) -> bool:
        """Whether something holds on any rank."""
        return self.count(int(flag)) > 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let an error inside the block be an error of all ranks, so that none waits for one that has given up.

        Raises:
            ModelError: another rank has met an error, and this one has not.
        """
        error: Exception | None = None
        try:
            yield
        except Exception as met:
            error = met
        failed = self.any(error is not None)
        if error is not None:
            raise error
        if failed:
            raise ModelError("expected a batch that all ranks can score, got an error on another rank; see its output")


class ShardedPass(Pass):
    """A pass over a sharded model: gathers the weights for each reduction, also for those that it cannot make.

    Args:
        sharding: the model's.
        own: see `Pass`. After an error of this rank the backward pass goes on, as the others wait for it there.
    """

    def __init__(self, sharding: Sharding, *own: Any) -> None:
        super().__init__(*own)
        self.sharding = sharding

    def finish(self) -> dict[str, list[Tensor]]:
        """See `Pass.finish`; calls that are replayed need their parameters."""
        with self.sharding.gathered_parameters(list(self._waiting)):
            return super().finish()

    def _reduce(self, contributions: Sequence[Contribution], names: Sequence[str], into: Mapping[str, Sum]) -> None:
        plan = self.plan
        self.plan = {**plan, **self.sharding.gathered({name: plan[name] for name in names})}
        try:
            if self.error is None:
                super()._reduce(contributions, names, into)
        except Exception as error:
            self.error = error
        finally:
            self.plan = plan
        if self.check is not None:
            for name in names:
                self.totals[name] = self.sharding.scattered(name, self.totals.get(name))

    def give_up(self, names: Sequence[str], error: Exception) -> None:
        """Take note that a call could not be read, and do what the other ranks expect for its parameters."""
        self.error = self.error or error
        unread: Any = object()  # stands for the call, so that what waits is the same on all ranks
        now = []
        for name in names:
            if self._deferred(name):
                self._waiting.setdefault(name, []).append(unread)
            else:
                now.append(name)
        self._reduce([unread], now, {})


def _groups(module: Any) -> list[Any]:
    """The groups of parameters that FSDP gathers for a module."""
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):  # torch 2.13; one group, or none, before
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]
