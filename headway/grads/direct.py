"""Parameters that a forward uses directly: class tokens, position tables, scales, tied heads.

While a model runs, its parameters are replaced by `Tracked` aliases. Every operation on a tracked tensor
passes through `__torch_function__`. An operation on parameters alone gives another tracked tensor, which
remembers how to compute itself again; an operation that also sees samples is where per-sample gradients
begin, and is observed there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from headway.errors import RuleError
from headway.grads.assignment import assign, explicit
from headway.grads.fallback import Leaves, Surroundings
from headway.grads.operations import Operation, Origin, in_place, run_operation
from headway.grads.products import RULES

if TYPE_CHECKING:
    from headway.grads.engine import Engine


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
        if func is Tensor.__setitem__ and any(one.origin.engine.listening() for one in args if isinstance(one, cls)):
            args = (args[0], explicit(args[1]), args[2])
        leaves, spec = tree_flatten((tuple(args), dict(kwargs or {})))
        aliases = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Tracked)}
        origins = {i: alias.origin for i, alias in aliases.items()}
        plain = [leaf.plain if isinstance(leaf, Tracked) else leaf for leaf in leaves]
        engine = next(iter(origins.values())).engine if origins else None
        if engine is None or not engine.listening():
            return run_operation(func, spec, plain)
        if func is Tensor.__setitem__:
            return _set_item(engine, args, spec, plain, origins)
        if func is F.scaled_dot_product_attention and _has_tracked_mask(*args, **(kwargs or {})):
            return _attend(*args, **(kwargs or {}))
        return _follow(engine, func, spec, plain, origins, aliases)


def track(tensor: Tensor, origin: Origin) -> Tracked:
    """Wrap a tensor; the alias stays in the graph, so that code which sees through it still trains."""
    wrapped = tensor.as_subclass(Tracked)
    wrapped.plain = tensor
    wrapped.origin = origin
    return wrapped


def parameter_origin(engine: Engine, name: str) -> Origin:
    """The origin of a parameter itself."""
    return Origin(engine, (name,), lambda leaves: leaves[name], leaf=True, selection=())


def _name_parameters(engine: Engine, plain: Sequence[Any], origins: dict[int, Origin]) -> None:
    """Add the origins of scored parameters that were not replaced by aliases."""
    for i, leaf in enumerate(plain):
        if i not in origins and isinstance(leaf, nn.Parameter):
            name = engine.name_of(leaf)
            if name is not None:
                origins[i] = parameter_origin(engine, name)


def _follow(
    engine: Engine,
    func: Callable[..., Any],
    spec: Any,
    plain: list[Any],
    origins: dict[int, Origin],
    aliases: Mapping[int, Tracked],
) -> Any:
    """Run an operation and decide whether its result is still made of parameters alone."""
    _name_parameters(engine, plain, origins)
    versions = {i: plain[i]._version for i in aliases}
    others = [i for i, leaf in enumerate(plain) if isinstance(leaf, Tensor) and i not in origins]
    saved = [plain[i].clone() if in_place(func) and i == 0 else plain[i] for i in others]
    surroundings = Surroundings.of(plain[next(iter(origins))].device, random=func not in RULES)
    result = run_operation(func, spec, plain)
    flat, out_spec = tree_flatten(result)
    written = {id(plain[i]): alias for i, alias in aliases.items() if plain[i]._version != versions[i]}
    same = {id(plain[i]): origin for i, origin in origins.items()}
    for i, leaf in enumerate(flat):
        if id(leaf) in same and id(leaf) not in written:  # .to() and .contiguous() may return the parameter itself
            flat[i] = track(leaf, same[id(leaf)])
    wanted = [i for i, leaf in enumerate(flat) if type(leaf) is Tensor and leaf.grad_fn is not None]
    if not wanted:
        return tree_unflatten(flat, out_spec)
    call = Operation(engine, func, spec, plain, origins, others, wanted, surroundings.settled())
    if call.sees_samples(saved, [flat[i] for i in wanted]):
        for i, output in zip(wanted, call.observe([flat[i] for i in wanted], saved), strict=True):
            flat[i] = output
    else:
        for i in wanted:
            origin = call.origin(i, flat[i], saved)
            if id(flat[i]) in written:  # ReLU(inplace=True): the alias that went in has changed too
                written[id(flat[i])].origin = origin
            flat[i] = track(flat[i], origin)
    return tree_unflatten(flat, out_spec)


def _has_tracked_mask(query: Tensor, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **more: Any) -> bool:
    """Whether attention adds a mask that is made of parameters, such as a position bias, to its scores."""
    return isinstance(attn_mask, Tracked) and query.dim() == 4 and attn_mask.dim() == 4


def _attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tracked, *rest: Any, **more: Any) -> Any:
    """Attention with a mask for each row: the gradients there are those of the samples.

    So attention need not run again for single samples, which could not draw the same dropout.
    """
    origin, rows = attn_mask.origin, len(query)
    if origin.batched is None:

        def rebuild(leaves: Leaves) -> Tensor:
            return origin.rebuild(leaves).expand(rows, -1, -1, -1)

        expanded = Origin(origin.engine, origin.names, rebuild, None, 0)
        attn_mask = track(attn_mask.plain.expand(rows, -1, -1, -1), expanded)
    return F.scaled_dot_product_attention(query, key, value, _anchor(attn_mask), *rest, **more)


def _set_item(engine: Engine, args: Sequence[Any], spec: Any, plain: list[Any], origins: dict[int, Origin]) -> None:
    """Run `target[index] = value`, where the target or the value is tracked."""
    (target, index, value), _ = tree_unflatten(plain, spec)
    _name_parameters(engine, plain, origins)
    if 0 not in origins:
        assign(target, index, value, origins[len(plain) - 1])
        return
    others = [i for i, leaf in enumerate(plain) if isinstance(leaf, Tensor) and i not in origins]
    call = Operation(engine, _with_item, spec, plain, origins, others, [0])
    if any(call.carries_samples(plain[i]) for i in others):
        raise RuleError(
            f"{call.path}: expected samples to be written into a tensor of samples, got one that is made of parameters "
            f"alone; join the two with torch.cat or torch.where instead"
        )
    target[index] = value
    args[0].origin = call.origin(0, target, [plain[i].clone() for i in others])


def _with_item(target: Tensor, index: Any, value: Any) -> Tensor:
    """A copy of the target after `target[index] = value`."""
    target = target.clone()
    target[index] = value
    return target


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
    call = Operation(origin.engine, _identity, spec, [tensor.plain], {0: origin}, [], [0])
    return call.observe([tensor.plain], [])[0]


def _identity(x: Tensor) -> Tensor:
    return x
