"""Parameters that are written into a tensor of samples: `h[mask] = self.token`.

An assignment gives nothing back that could be observed, so the value is, on its way into the tensor. Its gradient
shows where each number has gone, and with that to which sample it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from headway.grads.fallback import Function, Leaves, Replay, Surroundings, sample_dim, with_tensors
from headway.grads.layout import Layouts, flat_way_out, no_samples
from headway.grads.observe import observe
from headway.grads.passes import Contribution, Pass
from headway.grads.persample import Dense, PerSample, promote

if TYPE_CHECKING:
    from headway.grads.operations import Origin


def explicit(index: Any) -> tuple[Any, ...]:
    """An index with the places of its masks, so that a device is asked for them only once, as in plain training."""
    parts: list[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        is_mask = isinstance(part, Tensor) and part.dtype == torch.bool and part.dim() > 0
        parts += part.nonzero(as_tuple=True) if is_mask else (part,)
    return tuple(parts)


def assign(target: Tensor, index: Any, value: Tensor, origin: Origin) -> None:
    """Run `target[index] = value`, and listen to the value, which follows from parameters alone."""
    call = Assignment(target, index, value, origin)
    written = _broadcast(value, target.detach()[index].shape)
    target[index] = observe(call, [written], call.tensors(index))[0]


def _broadcast(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Expand a value to the shape of the places that it is written to; they may have fewer dimensions."""
    return value.reshape(value.shape[max(0, value.dim() - len(shape)) :]).expand(shape)


class Assignment:
    """A listener on a value that is written into a tensor of samples."""

    def __init__(self, target: Tensor, index: Any, value: Tensor, origin: Origin) -> None:
        """Keep the call without its tensors; those are saved in the graph."""
        self.engine = origin.engine
        self.names = origin.names
        self.path = f"{', '.join(origin.names)} in __setitem__"
        self.engine.count_use(origin.names, self.path, [target])
        self.engine.note_following()
        leaves, self._spec = tree_flatten(index)
        self._leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self._shape, self._value_shape = target.shape, value.shape
        self._leaf = origin.leaf

        def rebuild(leaves: Leaves, tensors: Sequence[Tensor], index: Tensor) -> list[Tensor]:
            return [origin.rebuild(leaves).unsqueeze(0)]

        parameters = {name: self.engine.parameters[name] for name in origin.names}
        surroundings = Surroundings.of(value.device, random=False)
        self._function = Function(self.path, rebuild, parameters, self.path, {}, surroundings)  # never compared

    def tensors(self, index: Any) -> list[Tensor]:
        """The tensors of an index."""
        return [leaf for leaf in tree_flatten(index)[0] if isinstance(leaf, Tensor)]

    def collect(self, current: Pass, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        with self.engine.paused():
            owners = self._owners(current.samples, grads[0].device)[self._index(saved)]
            places = torch.arange(prod(self._value_shape), device=grads[0].device).view(self._value_shape)
            (grad,) = promote(grads[0])
            current.add(self._written(grad, owners, _broadcast(places, grad.shape)))

    def _written(self, grad: Tensor, owners: Tensor, places: Tensor) -> Contribution:
        """The contribution of an assignment.

        Args:
            grad: the gradient where the value was written.
            owners: the sample of each number of `grad`.
            places: the place in the value, flat, from which each number came.
        """
        shape, size, function = self._value_shape, prod(self._value_shape), self._function

        def block(start: int, stop: int) -> Mapping[str, PerSample]:
            """Add up what came from each place, sample by sample, then go back to parameters."""
            count = stop - start
            inside = (owners >= start) & (owners < stop)
            into = torch.where(inside, (owners - start) * size + places, count * size)  # others go to the end
            sums = grad.new_zeros(count * size + 1).index_add_(0, into.flatten(), grad.flatten())
            grads = sums[:-1].view(count, *shape)
            if self._leaf:
                return {self.names[0]: Dense(grads)}
            return Replay(function, [], [grads], count, Layouts()).block(0, count)

        return Contribution(self.names, function.numel + size, block)

    def _index(self, tensors: Sequence[Tensor]) -> Any:
        return tree_unflatten(with_tensors(self._leaves, self._places, tensors), self._spec)

    def _owners(self, samples: int, device: torch.device) -> Tensor:
        """The sample to which each place of the target belongs, in the target's shape."""
        layouts, shape = self.engine.layouts, self._shape
        each = layouts.rows_each(self.path, shape[0] if shape else 0, samples)
        preferred = 1 if layouts.declared(self.path) == "positions-first" else 0
        target = torch.empty(shape, device="meta")
        layouts.refuse_two_readings(self.path, target, samples)
        dim = sample_dim(target, samples * each, preferred)
        if dim is None:
            way_out = "or build the tensor with torch.cat or torch.where instead if it is the same for all"
            where = "dimension 0 or 1 of the tensor that is written into"
            raise no_samples(self.path, where, shape, samples, f"{flat_way_out('* in *')}, {way_out}")
        owners = torch.arange(samples, device=device).repeat_interleave(each)
        return owners.view(-1, *(1 for _ in shape[dim + 1 :])).expand(shape)
