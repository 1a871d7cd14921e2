"""Operations on parameters that a forward uses directly: run again for single samples, or observed.

An operation on parameters alone gives a tensor with an `Origin`, which knows how to compute it again. One that also
sees samples is where per-sample gradients begin.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from headway.errors import LayoutError, RuleError
from headway.grads.compound import Normed, Selected, join
from headway.grads.fallback import Function, Leaves, Replay, ReplayedCall, Surroundings, shape_pattern, with_tensors
from headway.grads.layout import BY_SEGMENT, Layouts, flat_way_out
from headway.grads.observe import observe
from headway.grads.passes import Contribution
from headway.grads.persample import Dense, PerSample, promote
from headway.grads.products import RULES, Weight

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
        batched: the dimension that is the batch, where there is one: a sample sees only its own rows.
        leaf: the tensor is the parameter itself.
        selection: which numbers of its one parameter it holds, each once, if that is all it does; () for all of them.
        normed: the names of the directions and the lengths, if it is their weight normalisation row by row.
    """

    engine: Engine
    names: tuple[str, ...]
    rebuild: Callable[[Leaves], Tensor]
    row: Callable[[Leaves], Tensor] | None = None
    batched: int | None = None
    leaf: bool = False
    selection: Hashable = None
    normed: tuple[str, str] | None = None

    @property
    def pulls(self) -> bool:
        """Whether the gradients of the parameters follow from those at the tensor without a replay."""
        return self.batched is None and (self.leaf or self.selection is not None or self.normed is not None)

    def pull(self, form: PerSample) -> dict[str, PerSample]:
        """The gradients of the parameters, from those at the tensor."""
        name, parameters = self.names[0], self.engine.parameters
        if self.leaf:
            return {name: form}
        if self.normed is None:
            shape = parameters[name].shape
            return {name: Selected(form, lambda whole: self.rebuild({name: whole}), shape, self.selection)}
        of_v, of_g = self.normed
        v, g = (promote(parameters[own].detach())[0].flatten(1) for own in self.normed)
        norms = torch.linalg.vector_norm(v, dim=1, keepdim=True)
        directions = Normed(form, v / norms, (g / norms).squeeze(1))
        return {of_v: directions, of_g: Dense(directions.along())}

    def for_sample(self, leaves: Leaves, index: Tensor) -> Tensor:
        """The tensor as a batch of one sample sees it, whose rows are `index` [T]."""
        if self.row is not None:
            return self.row(leaves)
        value = self.rebuild(leaves)
        return value if self.batched is None else value.index_select(self.batched, index)


def run_operation(func: Callable[..., Any], spec: Any, leaves: Sequence[Any]) -> Any:
    """Call a function with flattened arguments."""
    args, kwargs = tree_unflatten(list(leaves), spec)
    return func(*args, **kwargs)


def in_place(func: Callable[..., Any]) -> bool:
    """Whether an operation writes into its first argument, by its name: `add_`, `__iadd__`."""
    name = getattr(func, "__name__", "")
    if name.startswith("__"):
        return name in {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}
    return name.endswith("_")


_VALUE_FREE = {
    getattr(owner, name)
    for owner in (torch, Tensor)
    for name in (
        *("add", "add_", "__add__", "__radd__", "__iadd__"),
        *("sub", "sub_", "__sub__", "__rsub__", "__isub__", "rsub"),
        *("cat", "concat", "concatenate", "stack", "where", "expand_as"),
    )
    if hasattr(owner, name)
}
"""Operations whose gradients do not depend on the numbers in their inputs; autograd does not keep those."""

_WAY_OUT = f"{flat_way_out('* in *')}; {BY_SEGMENT}; or leave the parameter out with where="

_EXPANSIONS = {Tensor.expand, Tensor.repeat, Tensor.expand_as, Tensor.broadcast_to, torch.broadcast_to, torch.tile}

_SELECTIONS = {
    found if callable(found) else found.__get__
    for owner in (torch, Tensor)
    for name in (
        *("t", "T", "mT", "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis"),
        *("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze", "contiguous"),
        *("chunk", "split", "split_with_sizes", "tensor_split", "unbind", "narrow", "select", "__getitem__"),
    )
    if (found := getattr(owner, name, None)) is not None
}
"""Operations that give some numbers of a tensor in another shape or order, each at most once."""


def _is_plain(argument: Any) -> bool:
    """Whether an argument of a selection is no tensor, no mask and no list of indices."""
    return argument is None or argument is Ellipsis or isinstance(argument, (int, slice, str))


def _is_apart(
    function: Function, tensors: Sequence[Tensor], outputs: Sequence[Tensor], samples: int, layouts: Layouts
) -> bool:
    """Whether an operation gives its outputs again when each sample sees only its own rows of the tensors."""
    try:
        for output in outputs:
            layouts.refuse_two_readings(function.name, output, samples)
    except LayoutError:
        return True  # it will be raised in the backward pass
    try:
        Replay(function, tensors, outputs, samples, layouts, outputs)
    except (LayoutError, RuleError):
        return False
    return True


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
        wanted: list[int],
        surroundings: Surroundings | None = None,
    ) -> None:
        """Keep the call without its tensors; those are saved in the graph."""
        self.engine, self.func = engine, func
        self.names = tuple(dict.fromkeys(name for origin in origins.values() for name in origin.names))
        self.path = f"{', '.join(self.names)} in {getattr(func, '__name__', func)}"
        self._surroundings = surroundings or Surroundings.of(leaves[next(iter(origins))].device, random=False)
        self._spec = spec
        self._leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._shapes = {i: leaves[i].shape for i in origins}
        self._origins = origins
        self._others = others
        self._wanted = wanted
        self._out_shape = (0, 0)  # dimensions and rows of the first output

    def _again(self, rebuilt: Mapping[int, Tensor], others: Sequence[Tensor]) -> list[Any]:
        leaves = with_tensors(self._leaves, self._others, others)
        if in_place(self.func) and 0 in self._others:
            leaves[0] = leaves[0].clone()
        for i, tensor in rebuilt.items():
            leaves[i] = tensor
        self._surroundings.rewind()
        return tree_flatten(run_operation(self.func, self._spec, leaves))[0]

    def origin(self, index: int, output: Tensor, others: Sequence[Tensor]) -> Origin:
        """The origin of output `index`, when no samples took part."""

        def rebuild(leaves: Leaves) -> Tensor:
            return self._again({i: origin.rebuild(leaves) for i, origin in self._origins.items()}, others)[index]

        layouts = self.engine.layouts
        second = layouts.declared("") == "positions-first" and layouts.declared(self.path) != "flat"
        dim = 1 if second else 0
        each = self._rows_each(output, dim)
        if each and self._expands(output, dim):
            return Origin(self.engine, self.names, rebuild, self._for_one(rebuild, dim, output.dim(), each), dim)
        rows = self._rows_repeated(output)
        if rows:
            return Origin(self.engine, self.names, rebuild, lambda leaves: rebuild(leaves).narrow(0, 0, rows), 0)
        selection, normed = self._selection(index), self._normed()
        batched = each > 0 and any(origin.batched is not None for origin in self._origins.values())
        batch_dim = dim if batched else None
        return Origin(self.engine, self.names, rebuild, None, batch_dim, selection=selection, normed=normed)

    def _selection(self, index: int) -> Hashable:
        """What output `index` selects of one parameter, see `Origin`."""
        before = next(iter(self._origins.values()))
        alone = list(self._origins) == [0] and before.selection is not None and self.func in _SELECTIONS
        if not alone or not all(map(_is_plain, self._leaves[1:])):
            return None
        return before.selection, self.func, str(self._spec), repr(self._leaves[1:]), index

    def _normed(self) -> tuple[str, str] | None:
        """The directions and lengths of a weight normalisation over the rows of a parameter, see `Origin`."""
        if self.func is not torch._weight_norm or list(self._origins) != [0, 1] or self._leaves[2:] not in ([], [0]):
            return None
        v, g = self._origins.values()
        return (v.names[0], g.names[0]) if v.leaf and g.leaf and v.names != g.names else None

    def _rows_each(self, tensor: Tensor, dim: int = 0) -> int:
        """How many rows each sample of the batch would have in a tensor; 0 if it has no room for them."""
        batch = self.engine.batch_hint
        if batch is None or tensor.dim() <= dim:
            return 0
        each = self.engine.layouts.rows_each(self.path, tensor.shape[dim], batch)
        return each if tensor.shape[dim] == each * batch else 0

    def sees_samples(self, tensors: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
        """Whether the operation sees samples.

        A constant that only happens to be as long as the batch is told by trying: it gives other outputs, or none at
        all, where each sample has a row of it.
        """
        carrying = [tensor for tensor in tensors if self.carries_samples(tensor)]
        samples = self.engine.batch_hint
        if not carrying or samples is None or self.engine.layouts.declared(self.path) is not None:
            return bool(carrying)
        if any(tensor.requires_grad or self.engine.is_input(tensor) for tensor in carrying):
            return True
        function = self._as_function(tensors)
        if function.call not in self.engine.apart:
            plain = [output.detach() for output in outputs]
            with self.engine.paused():
                self.engine.apart[function.call] = _is_apart(function, tensors, plain, samples, self.engine.layouts)
        return self.engine.apart[function.call]

    def carries_samples(self, tensor: Tensor) -> bool:
        """As `Engine.carries_samples`, also where the samples are flat."""
        if not isinstance(tensor, nn.Parameter) and (each := self._rows_each(tensor)) > 1:
            tensor = tensor.unflatten(0, (-1, each))
        return self.engine.carries_samples(tensor)

    def _expands(self, output: Tensor, dim: int) -> bool:
        """Whether the operation repeats a tensor along a new or single dimension."""
        if self.func not in _EXPANSIONS or len(self._origins) != 1:
            return False
        (before,) = self._shapes.values()
        place = dim - (output.dim() - len(before))  # sizes are matched from the last on
        return place < 0 or before[place] == 1

    def _rows_repeated(self, output: Tensor) -> int:
        """How many rows were repeated once for each sample, one sample after another; 0 if that is not what it does."""
        before: Sequence[int] = next(iter(self._shapes.values())) if len(self._shapes) == 1 else ()
        batch, repeats = self.engine.batch_hint, [leaf for leaf in self._leaves if isinstance(leaf, int)]
        once = self.func is Tensor.repeat and batch is not None and repeats == [batch, *[1] * (output.dim() - 1)]
        return before[0] if once and len(before) == output.dim() and before[0] > 1 else 0

    def _for_one(
        self, rebuild: Callable[[Leaves], Tensor], dim: int, dims: int, rows: int
    ) -> Callable[[Leaves], Tensor]:
        """The expansion for a batch of one sample: the size of the batch becomes the rows of a sample."""
        sizes = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, int)]
        if len(sizes) < dims - dim:  # the sizes of another tensor
            return lambda leaves: rebuild(leaves).narrow(dim, 0, rows)
        small = list(self._leaves)
        small[sizes[dim - dims]] = rows
        ((place, origin),) = self._origins.items()

        def row(leaves: Leaves) -> Tensor:
            own = list(small)
            own[place] = origin.rebuild(leaves)
            return run_operation(self.func, self._spec, own)

        return row

    def observe(self, outputs: list[Tensor], saved: list[Tensor]) -> tuple[Tensor, ...]:
        """Listen to the outputs of an operation that sees samples."""
        function = self._as_function(saved)
        self._out_shape = outputs[0].dim(), len(outputs[0]) if outputs[0].dim() else 0
        self.engine.note_following()
        call = ReplayedCall(self.engine, function, outputs, saved, partial(self._by_rule, function))
        return observe(call, outputs, [self._to_keep(tensor, call.kept is not None) for tensor in saved])

    def _as_function(self, saved: Sequence[Tensor]) -> Function:
        parameters = {name: self.engine.parameters[name] for name in self.names}
        rows = tuple(origin.batched for origin in self._origins.values())
        shapes = [*(tensor.shape for tensor in saved), *self._shapes.values()]
        call = (self.path, tuple(self._others), rows, shape_pattern(shapes))
        return Function(
            self.path, self._replay, parameters, call, self.engine.splits, self._surroundings, way_out=_WAY_OUT
        )

    def _to_keep(self, tensor: Tensor, compared: bool) -> Tensor:
        """What the replay needs of an input, which the model may change in place if autograd does not keep it."""
        if self.func not in _VALUE_FREE or not tensor.is_floating_point():
            return tensor
        return tensor.clone() if compared else tensor.new_zeros(()).expand(tensor.shape)

    def _replay(self, leaves: Leaves, tensors: Sequence[Tensor], index: Tensor) -> list[Tensor]:
        rebuilt = {i: origin.for_sample(leaves, index) for i, origin in self._origins.items()}
        if len(index) > 1:  # flat: a tensor of parameters alone may have a row for each row of the samples
            rebuilt = {i: self._own_rows(tensor, index) for i, tensor in rebuilt.items()}
        result = self._again(rebuilt, tensors)
        return [result[i] for i in self._wanted]

    def _own_rows(self, tensor: Tensor, index: Tensor) -> Tensor:
        dims, rows = self._out_shape
        return tensor.index_select(0, index) if tensor.dim() == dims and len(tensor) == rows > len(index) else tensor

    def _by_rule(self, function: Function, saved: Sequence[Tensor], grad: Tensor, samples: int) -> Contribution | None:
        """The operation's contribution by its rule; None if there is no rule, or none for such arguments."""
        layouts = self.engine.layouts
        each = layouts.rows_each(self.path, len(grad) if grad.dim() else 0, samples)
        in_place = grad.dim() > 0 and len(grad) == samples * each and layouts.declared(self.path) != "positions-first"
        rule_may_apply = self.func in RULES and self._wanted == [0] and all(o.pulls for o in self._origins.values())
        if not rule_may_apply or not in_place or self.engine.ruled.get(function.call) is False:
            return None
        leaves = with_tensors(self._leaves, self._others, saved)
        for i, shape in self._shapes.items():
            leaves[i] = Weight(i, tuple(shape))
        args, kwargs = tree_unflatten(leaves, self._spec)
        if any(isinstance(value, Tensor) for value in kwargs.values()):
            return None
        rule, size = RULES[self.func], function.numel

        def block(start: int, stop: int) -> Mapping[str, PerSample]:
            found: dict[str, list[PerSample]] = {}
            for weight, form in rule.at(grad, args, kwargs, start, stop).items():
                for name, gradients in self._origins[weight.place].pull(form).items():
                    found.setdefault(name, []).append(gradients)
            return {name: join(forms) for name, forms in found.items()}

        factors = 2 * grad[0].numel() + sum(tensor.numel() for tensor in saved) // len(grad)
        ruled = self.engine.ruled
        if function.call not in ruled:  # whether the rule applies, tried on the first sample
            ruled[function.call] = bool(block(0, 1))
        if not ruled[function.call]:
            return None
        return Contribution(self.names, factors + (size if grad.dim() > 2 else 0), block).folded(each, size)
