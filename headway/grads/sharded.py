"""Models that `torch.distributed.fsdp.fully_shard` has sharded (FSDP2).

Activations and the gradients at outputs belong to the rank that has the samples. What a score needs from the other
ranks are its weights. They lie as shards beside those of the parameters, are gathered for a layer when its backward
pass needs them, and are dropped after it. The moments take the gradient that FSDP has averaged and scattered.

FSDP exchanges two tensors for each parameter: the sharded one, a DTensor that the optimizer sees, and the whole one,
which stands in the module while it runs and is a leaf of the graph. The engine works on the whole one.

A shard here is this rank's piece of a tensor, a plain tensor. What FSDP knows of a parameter is its FSDPParam.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import ModelError, SignalError, StateError
from headway.grads.agreement import Agreement
from headway.grads.passes import Contribution, Pass
from headway.grads.persample import Reduction, Sum
from headway.grads.registry import is_sharded


def find_sharding(model: nn.Module, verify: bool = False) -> Sharding | None:
    """How a model is sharded; None if it is not. All ranks have to ask.

    Raises:
        ModelError: it is sharded in a way that cannot be scored, or not compared sample by sample (`verify`).
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

    def __init__(self, fsdp_param: Any) -> None:
        self._fsdp_param = fsdp_param
        self.device: torch.device = fsdp_param.sharded_param.device

    @property
    def grad(self) -> Tensor | None:
        """The shard of the gradient: `.grad` of the sharded parameter, as a plain tensor."""
        grad = self._fsdp_param.sharded_param.grad
        return None if grad is None else grad._local_tensor

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        self._fsdp_param.sharded_param.grad = None if grad is None else self._fsdp_param.to_sharded_dtensor(grad)

    @property
    def grad_version(self) -> int:
        """The version of the DTensor: what is done to it in place does not count for the tensor inside."""
        return self._fsdp_param.sharded_param.grad._version

    @property
    def waits(self) -> bool:
        """Whether a gradient waits, whole, for a pass that synchronises."""
        return any(getattr(owner, name) is not None for owner, name in _whole_gradients(self._fsdp_param))


class Sharding:
    """The shards of a model. Every method that communicates has to run on all ranks.

    Attributes:
        ranks: what the ranks do together.
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
        found = [fsdp_param for group in self._groups for fsdp_param in group.fsdp_params]
        by_id = {id(getattr(each, key, None)): each for each in found for key in ("sharded_param", "_unsharded_param")}
        named = dict(model.named_parameters())
        self._fsdp_params = {name: by_id[id(p)] for name, p in named.items() if id(p) in by_id}
        self._refuse(named)
        for module in self._modules:
            if any(not hasattr(each, "_unsharded_param") for group in _groups(module) for each in group.fsdp_params):
                module.unshard()
                module.reshard()
        self._whole = {id(each.sharded_param): each._unsharded_param for each in found}
        self._sharded = {id(each._unsharded_param): each.sharded_param for each in found}
        first = next(iter(self._fsdp_params.values())).sharded_param
        self._over = [dim for dim, kind in enumerate(first.placements) if kind.is_shard()]
        self._pieces = math.prod(first.device_mesh.size(dim) for dim in self._over)
        self._device = first.device
        self.ranks = Agreement(first.device_mesh, first.device)
        self.trained = {name: Shard(each) for name, each in self._fsdp_params.items() if named[name].requires_grad}
        self.largest = 0

    def _refuse(self, named: Mapping[str, Tensor]) -> None:
        for name, parameter in named.items():
            fsdp_param = self._fsdp_params.get(name)
            if fsdp_param is None and hasattr(parameter, "placements"):
                raise _not_fsdp(name)
            if fsdp_param is None and parameter.requires_grad:
                raise ModelError(
                    f"{name}: expected every trained parameter to be sharded, got a whole one, whose gradient FSDP "
                    f"does not average; call fully_shard on the model too, after its parts, or freeze the parameter"
                )
            if fsdp_param is None:
                continue
            if fsdp_param.is_dtensor:
                raise _not_fsdp(name)
            own = fsdp_param.sharded_param
            is_piece = any(kind.is_shard() for kind in own.placements)
            by_number = fsdp_param.post_forward_mesh_info not in (None, fsdp_param.mesh_info)
            for wrong, expected in (
                (not is_piece, "a shard, got a replica; use DistributedDataParallel for replicas"),
                (own.is_meta, "an initialised parameter, got one on the meta device; call to_empty() first"),
                (fsdp_param.offload_to_cpu, "shards on the device, got CPUOffloadPolicy; shard without it"),
                (by_number, "reshard_after_forward to be True or False, got a number; pass one of these"),
            ):
                if wrong:
                    raise ModelError(f"{name}: expected {expected}")
        meshes = {each.sharded_param.device_mesh for each in self._fsdp_params.values()}
        if len(meshes) != 1:
            raise ModelError(f"expected shards over one device mesh, got {len(meshes)}; use one mesh for all modules")

    # Parameters

    def in_use(self, parameter: Tensor) -> Any:
        """The tensor that stands in a parameter's place while its module runs."""
        return self._whole.get(id(parameter), parameter)

    def at_rest(self, parameter: Any) -> Any:
        """The parameter that a tensor stands for while its module runs."""
        return self._sharded.get(id(parameter), parameter)

    @contextmanager
    def gathered_parameters(self, names: Sequence[str]) -> Iterator[None]:
        """Have some parameters whole outside of their modules' passes."""
        wanted = {id(self._fsdp_params[name]) for name in names}
        modules = [
            module
            for module in self._modules
            if any(id(each) in wanted for group in _groups(module) for each in group.fsdp_params)
        ]
        for module in modules:
            module.unshard()
        try:
            yield
        finally:
            for module in modules:
                module.reshard()

    # Tensors beside the parameters

    def shard_of(self, tensor: Tensor) -> Tensor:
        """See `Parts.shard_of`."""
        return getattr(tensor.detach(), "_local_tensor", tensor)

    def total(self, number: Tensor) -> Tensor:
        """See `Parts.total`: the sum over the ranks that share the parameters among them."""
        return self.ranks.sum(number, self._over)

    def joined(self, name: str, shard: Tensor) -> Tensor:
        """See `Parts.joined`."""
        from torch.distributed.tensor import DTensor

        like = self._fsdp_params[name].sharded_param
        if shard.shape != like._local_tensor.shape:
            raise SignalError(
                f"{name}: expected the shard of a weight, shape {list(like._local_tensor.shape)}, got shape "
                f"{list(shard.shape)}; make weights of the moments, or of scope.parameters as DTensors"
            )
        return DTensor.from_local(
            shard, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )

    def cut(self, name: str, tensor: Tensor) -> Tensor:
        """See `Parts.cut`."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        like = self._fsdp_params[name].sharded_param
        if not isinstance(tensor, DTensor):
            tensor = distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
        elif tensor.device_mesh != like.device_mesh or tensor.placements != like.placements:
            raise StateError(
                f"{name}: expected a whole tensor, or a DTensor with placements {like.placements} on "
                f"{like.device_mesh}, got one with {tensor.placements} on {tensor.device_mesh}; load it with "
                f"torch.distributed.checkpoint, or give its full_tensor()"
            )
        return self.shard_of(tensor)

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
        dtensor: Any = weight if hasattr(weight, "placements") else self.joined(name, weight)
        return dtensor.full_tensor()

    def scattered(self, name: str, whole: Tensor | None) -> Tensor:
        """The shard of what FSDP makes of a gradient, flat and whole, that each rank has; None is zero."""
        from torch.distributed.tensor import DTensor, Partial

        like = self._fsdp_params[name].sharded_param
        dtype = torch.promote_types(like.dtype, torch.float32)  # the same on all ranks
        whole = torch.zeros(like.shape, device=self._device) if whole is None else whole.view(like.shape)
        term = whole.to(dtype) / self.divisor
        terms = DTensor.from_local(term, like.device_mesh, [Partial() for _ in like.placements], run_check=False)
        return self.shard_of(terms.redistribute(placements=like.placements))

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
        return float(told.pop() or self.ranks.count)

    @property
    def scale(self) -> float:
        """What the mean gradient over ranks is multiplied by in `.grad`."""
        return self.ranks.count / self.divisor

    def mean(self, number: Tensor) -> Tensor:
        """The mean of a number over all ranks."""
        return self.ranks.sum(number) / self.ranks.count

    def lengths(self, lengths: Tensor) -> Tensor:
        """The lengths of vectors of which each rank has a shard, from those of the shards."""
        replicas = self.ranks.count / self._pieces
        return (self.ranks.sum(lengths.square()) / replicas).sqrt().to(lengths)

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

    def _places(self) -> list[tuple[Any, str]]:
        """Where FSDP keeps gradients until a pass synchronises."""
        whole = [place for group in self._groups for each in group.fsdp_params for place in _whole_gradients(each)]
        return [*((group, "_partial_reduce_output") for group in self._groups), *whole]

    def waiting(self) -> Callable[[], None]:
        """Copy the gradients that wait for a pass that synchronises; returns what puts them back."""
        found = [(owner, name, getattr(owner, name)) for owner, name in self._places()]
        copies = [(owner, name, None if grad is None else grad.clone()) for owner, name, grad in found]
        return lambda: _set(copies)

    @contextmanager
    def _set_aside(self) -> Iterator[None]:
        """Let a backward pass fill `.grad` with its gradient alone, averaged, without the hooks on the parameters."""
        hooks = "_post_accumulate_grad_hooks"
        sharded = [each.sharded_param for group in self._groups for each in group.fsdp_params]
        places: list[tuple[Any, str, Any]]
        places = [(group, name, True) for group in self._groups for name in ("reduce_grads", "all_reduce_grads")]
        places += [(owner, name, None) for owner, name in self._places()]
        places += [(each, "grad", None) for each in sharded]
        places += [(each, hooks, None) for each in sharded if getattr(each, hooks, None)]
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
        _set(places)
        try:
            yield
        finally:
            _set(before)


class ShardedPass(Pass):
    """A pass over a sharded model: gathers the weights for each reduction, also for those that it cannot make.

    Args:
        sharding: the model's.
        rest: see `Pass`. After an error of this rank the backward pass goes on, as the others wait for it there.
    """

    def __init__(self, sharding: Sharding, *rest: Any) -> None:
        super().__init__(*rest)
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
        for name in names:
            self.sharding.ranks.note(name)
            if self.check is not None:
                self.totals[name] = self.sharding.scattered(name, self.totals.get(name))

    def give_up(self, names: Sequence[str], error: Exception) -> None:
        """Take note that a call could not be read, and do what the other ranks expect for its parameters."""
        self.error = self.error or error
        unread: Any = object()  # stands for the call, so that what waits is the same on all ranks
        self._reduce([unread], self._due(names, unread), {})


def _groups(module: Any) -> list[Any]:
    """The groups of parameters that FSDP gathers for a module."""
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):  # torch 2.13; one group, or none, before
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


def _whole_gradients(fsdp_param: Any) -> list[tuple[Any, str]]:
    """Where FSDP keeps the whole gradient of a parameter until a pass synchronises."""
    return [(fsdp_param, "unsharded_accumulated_grad"), (fsdp_param._unsharded_param, "grad")]


def _set(values: Iterable[tuple[Any, str, Any]]) -> None:
    for owner, name, value in values:
        setattr(owner, name, value)
