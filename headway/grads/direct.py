"""Parameters that a forward uses directly: class tokens, position tables, scales, tied heads.

While a model runs, its parameters are replaced by `Tracked` aliases. Every operation on a tracked tensor
passes through `__torch_function__`. An operation on parameters alone gives another tracked tensor, which
remembers how to compute itself again; an operation that also sees samples is where per-sample gradients
begin, and is observed there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from headway.grads.fallback import Function, Leaves, Replay, shape_pattern
from headway.grads.linear import outer_product, sum_positions
from headway.grads.observe import observe
from headway.grads.persample import PerSample, promote

if TYPE_CHECKING:
    from headway.grads.engine import Engine


@dataclass(frozen=True)
class Origin:
    """How a tensor follows from parameters alone.

    Attributes:
        engine: who listens.
        names: the parameters that it depends on.
        rebuild: computes it again from the parameters.
        row: computes a version for a batch of one sample, where the tensor was expanded over the batch.
        batched: the dimension that is the batch, where there is one: a sample sees only its own row.
        leaf: the tensor is the parameter itself.
    """

    engine: Engine
    names: tuple[str, ...]
    rebuild: Callable[[Leaves], Tensor]
    row: Callable[[Leaves], Tensor] | None = None
    batched: int | None = None
    leaf: bool = False

    def for_sample(self, leaves: Leaves, index: Tensor) -> Tensor:
        """The tensor as a batch of the one sample `index` [1] sees it."""
        if self.row is not None:
            return self.row(leaves)
        value = self.rebuild(leaves)
        return value if self.batched is None else value.index_select(self.batched, index)


class Tracked(Tensor):
    """A tensor computed from parameters alone, behaving like the plain tensor that it stands for."""

    plain: Tensor
    origin: Origin

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operation on plain tensors, and follow what came out of it."""
        leaves, spec = tree_flatten((tuple(args), dict(kwargs or {})))
        origins = {i: leaf.origin for i, leaf in enumerate(leaves) if isinstance(leaf, Tracked)}
        plain = [leaf.plain if isinstance(leaf, Tracked) else leaf for leaf in leaves]
        engine = next(iter(origins.values())).engine if origins else None
        if engine is None or not engine.listening():
            return _run(func, spec, plain)
        return _follow(engine, func, spec, plain, origins)


def track(tensor: Tensor, origin: Origin) -> Tracked:
    """Wrap a tensor; the alias stays in the graph, so that code which sees through it still trains."""
    wrapped = tensor.as_subclass(Tracked)
    wrapped.plain = tensor
    wrapped.origin = origin
    return wrapped


def parameter_origin(engine: Engine, name: str) -> Origin:
    """The origin of a parameter itself."""
    return Origin(engine, (name,), lambda leaves: leaves[name], leaf=True)


def _run(func: Callable[..., Any], spec: Any, leaves: Sequence[Any]) -> Any:
    args, kwargs = tree_unflatten(list(leaves), spec)
    return func(*args, **kwargs)


def _in_place(func: Callable[..., Any]) -> bool:
    """Whether an operation writes into its first argument, by its name: `add_`, `__iadd__`."""
    name = getattr(func, "__name__", "")
    if name.startswith("__"):
        return name in {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}
    return name.endswith("_")


_EXPANSIONS = {
    Tensor.expand,
    Tensor.repeat,
    Tensor.expand_as,
    torch.broadcast_to,
    Tensor.broadcast_to,
    torch.tile,
}


def _follow(engine: Engine, func: Callable[..., Any], spec: Any, plain: list[Any], origins: dict[int, Origin]) -> Any:
    """Run an operation and decide whether its result is still made of parameters alone."""
    for i, leaf in enumerate(plain):
        if i not in origins and isinstance(leaf, nn.Parameter):
            name = engine.name_of(leaf)
            if name is not None:
                origins[i] = parameter_origin(engine, name)
    others = [i for i, leaf in enumerate(plain) if isinstance(leaf, Tensor) and i not in origins]
    saved = [plain[i].clone() if _in_place(func) and i == 0 else plain[i] for i in others]
    result = _run(func, spec, plain)
    flat, out_spec = tree_flatten(result)
    same = {id(plain[i]): origin for i, origin in origins.items()}
    for i, leaf in enumerate(flat):
        if id(leaf) in same:  # .to() and .contiguous() may return the parameter itself
            flat[i] = track(leaf, same[id(leaf)])
    wanted = [i for i, leaf in enumerate(flat) if type(leaf) is Tensor and leaf.grad_fn is not None]
    if not wanted:
        return tree_unflatten(flat, out_spec)
    names = tuple(dict.fromkeys(name for origin in origins.values() for name in origin.names))
    call = Operation(engine, func, spec, plain, origins, others, names, wanted)
    if _sees_samples(engine, saved, [flat[i] for i in wanted]):
        for i, output in zip(wanted, call.observe([flat[i] for i in wanted], saved), strict=True):
            flat[i] = output
    else:
        for i in wanted:
            flat[i] = track(flat[i], call.origin(i, flat[i], saved))
    return tree_unflatten(flat, out_spec)


def _sees_samples(engine: Engine, tensors: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Whether an operation sees samples.

    A vector that only happens to be as long as the batch is summed over, so that its length does not come out again.
    """
    return any(
        engine.carries_samples(tensor)
        and (tensor.requires_grad or tensor.dim() != 1 or any(len(tensor) in output.shape for output in outputs))
        for tensor in tensors
    )


class Operation:
    """One operation on tracked tensors, which can be run again on other parameters and samples."""

    def __init__(
        self,
        engine: Engine,
        func: Callable[..., Any],
        spec: Any,
        leaves: list[Any],
        origins: dict[int, Origin],
        others: list[int],
        names: tuple[str, ...],
        wanted: list[int],
    ) -> None:
        """Keep the call without its tensors; those are saved in the graph."""
        self.engine = engine
        self.func = func
        self.name = f"{', '.join(names)} in {getattr(func, '__name__', func)}"
        self._spec = spec
        self._leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._shapes = {i: leaves[i].shape for i in origins}
        self._origins = origins
        self._others = others
        self._names = names
        self._wanted = wanted

    def _again(self, rebuilt: Mapping[int, Tensor], others: Sequence[Tensor]) -> list[Any]:
        leaves = list(self._leaves)
        for i, tensor in zip(self._others, others, strict=True):
            leaves[i] = tensor.clone() if _in_place(self.func) and i == 0 else tensor
        for i, tensor in rebuilt.items():
            leaves[i] = tensor
        result: list[Any] = tree_flatten(_run(self.func, self._spec, leaves))[0]
        return result

    def origin(self, index: int, output: Tensor, others: Sequence[Tensor]) -> Origin:
        """The origin of output `index`, when no samples took part."""

        def rebuild(leaves: Leaves) -> Tensor:
            rebuilt = {i: origin.rebuild(leaves) for i, origin in self._origins.items()}
            value: Tensor = self._again(rebuilt, others)[index]
            return value

        batch = self.engine.batch_hint
        dim = 1 if self.engine.layouts.declared("") == "positions-first" else 0
        is_batch = batch is not None and output.dim() > dim and output.shape[dim] == batch
        if is_batch and self._expands(output, dim):
            return Origin(self.engine, self._names, rebuild, self._for_one(rebuild, dim, output.dim()), dim)
        batched = is_batch and any(origin.batched is not None for origin in self._origins.values())
        return Origin(self.engine, self._names, rebuild, None, dim if batched else None)

    def _expands(self, output: Tensor, dim: int) -> bool:
        """Whether the operation repeats a tensor along a new or single dimension."""
        if self.func not in _EXPANSIONS or len(self._origins) != 1:
            return False
        (before,) = self._shapes.values()
        place = dim - (output.dim() - len(before))  # sizes are matched from the last on
        return place < 0 or before[place] == 1

    def _for_one(self, rebuild: Callable[[Leaves], Tensor], dim: int, dims: int) -> Callable[[Leaves], Tensor]:
        """The expansion for a batch of one sample: the size of the batch becomes 1."""
        sizes = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, int)]
        if len(sizes) < dims - dim:  # the sizes of another tensor
            return lambda leaves: rebuild(leaves).narrow(dim, 0, 1)
        small = list(self._leaves)
        small[sizes[dim - dims]] = 1
        ((place, origin),) = self._origins.items()

        def row(leaves: Leaves) -> Tensor:
            own = list(small)
            own[place] = origin.rebuild(leaves)
            value: Tensor = _run(self.func, self._spec, own)
            return value

        return row

    def observe(self, outputs: list[Tensor], saved: list[Tensor]) -> tuple[Tensor, ...]:
        """Listen to the outputs of an operation that sees samples."""
        parameters = {name: self.engine.parameters[name] for name in self._names}
        rows = tuple(origin.batched for origin in self._origins.values())
        shapes = [*(tensor.shape for tensor in saved), *self._shapes.values()]
        call = (self.name, tuple(self._others), rows, shape_pattern(shapes))
        self._function = Function(self.name, self._replay, parameters, call, self.engine.splits)
        self.engine.count_use(self._names, call, [*saved, *outputs])
        self.engine.note_following()
        self._kept: list[Tensor] | None = None
        if self.engine.is_new(call):
            self._kept = [output.detach().clone() for output in outputs]
        return observe(self, outputs, saved)

    def _replay(self, leaves: Leaves, tensors: Sequence[Tensor], index: Tensor) -> list[Tensor]:
        rebuilt = {i: origin.for_sample(leaves, index) for i, origin in self._origins.items()}
        result = self._again(rebuilt, tensors)
        return [result[i] for i in self._wanted]

    def collect(self, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        current = self.engine.current
        if current is None or self.engine.is_paused:
            return
        kept, self._kept = self._kept, None
        with self.engine.paused():
            if self.func is F.linear and self._is_plain_linear(saved, current.samples):
                self.engine.layouts.refuse_two_readings(self.name, grads[0], current.samples)
                self.engine.splits.setdefault(self._function.call, {})[0,] = (True,)  # needs no check by its outputs
                current.add(DirectLinear(self._names, saved[0], grads[0]))
                return
            layouts = self.engine.layouts
            current.add(Replay(self._function, list(saved), list(grads), current.samples, layouts, kept))

    def _is_plain_linear(self, saved: Sequence[Tensor], samples: int) -> bool:
        """F.linear(x, parameter, parameter or None) with samples first: the Linear rule applies."""
        if self.engine.layouts.declared(self.name) == "positions-first":
            return False
        direct = all(origin.leaf for origin in self._origins.values())
        weight_first = list(self._origins) in ([1], [1, 2]) and len(self._shapes[1]) == 2
        return direct and weight_first and len(saved) == 1 and saved[0].shape[0] == samples


@dataclass
class DirectLinear:
    """The contribution of F.linear on parameters of some module."""

    params: tuple[str, ...]
    inputs: Tensor
    grad_output: Tensor

    @property
    def footprint(self) -> int:
        """See `Contribution.footprint`."""
        wide = self.inputs.shape[-1], self.grad_output.shape[-1]
        return sum(wide) if self.inputs.dim() == 2 else wide[0] * wide[1]

    def block(self, start: int, stop: int) -> Mapping[str, PerSample]:
        """See `Contribution.block`."""
        a, b = promote(self.inputs[start:stop], self.grad_output[start:stop])
        forms: list[PerSample] = [outer_product(a, b), sum_positions(b)]
        return dict(zip(self.params, forms, strict=False))


def is_tracked_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call has a tracked argument. Asked for every call of every module, so the common case is quick."""
    if not kwargs and all(type(arg) is Tensor for arg in args):
        return False
    return is_tracked((args, kwargs))


def is_tracked(tree: Any) -> bool:
    """Whether any tensor in nested arguments is tracked."""
    if isinstance(tree, Tensor):
        return isinstance(tree, Tracked)
    if isinstance(tree, dict):
        return any(is_tracked(value) for value in tree.values())
    return isinstance(tree, (tuple, list)) and any(is_tracked(value) for value in tree)


def anchor(tree: Any) -> Any:
    """End the tracking of tensors that were expanded over the batch: from here on they are activations."""
    return tree_map(
        lambda leaf: _anchor(leaf) if isinstance(leaf, Tracked) and leaf.origin.batched is not None else leaf, tree
    )


def _anchor(tensor: Tracked) -> Tensor:
    origin = tensor.origin
    spec = tree_flatten(((tensor,), {}))[1]
    call = Operation(origin.engine, _identity, spec, [tensor.plain], {0: origin}, [], origin.names, [0])
    return call.observe([tensor.plain], [])[0]


def _identity(x: Tensor) -> Tensor:
    return x
