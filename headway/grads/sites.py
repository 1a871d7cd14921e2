"""Sites: the modules of a model that the engine watches, and what it does at each."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from headway.errors import LayoutError
from headway.grads.direct import Tracked, anchor, is_tracked_call, track
from headway.grads.fallback import Leaves, Surroundings
from headway.grads.hooks import Hook, without_forward_hooks
from headway.grads.operations import Origin
from headway.grads.registry import Inputs, is_sharded

if TYPE_CHECKING:
    from headway.grads.engine import Engine


Slots = dict[str, Any]
"""A module's parameters by their own names; for the time of a forward, other tensors may stand in for them."""

Replaced = tuple[Slots, str, Tensor]
"""A place, and the tensor that belongs there."""


@dataclass
class Call:
    """A call of a module that is under way.

    Attributes:
        args: its arguments before other hooks have changed them.
        kwargs: the same of its keyword arguments.
        replaced: what to put back behind it.
        surroundings: random state and autocast before it, where a replay will need them.
    """

    args: Any
    kwargs: Any
    replaced: list[Replaced] = field(default_factory=list)
    surroundings: Surroundings | None = None


def own_slots(module: nn.Module) -> Slots:
    """The places of a module's own parameters."""
    return module._parameters


def parameter_slots(module: nn.Module) -> list[Slots]:
    """The places of all parameters of a module and below."""
    return [own_slots(owner) for owner in module.modules()]


class Site(Protocol):
    """A watched module."""

    def attach(self) -> list[Any]:
        """Register hooks; return their handles."""
        ...

    def release(self) -> None:
        """Undo whatever removing the handles does not undo."""
        ...

    def release_places(self) -> None:
        """Put the parameters back in their places, after a forward that was interrupted."""
        ...


class OwnerSite:
    """A module whose own parameters are scored as one unit: what its kinds have in common."""

    def __init__(self, engine: Engine, path: str, module: nn.Module, own: Mapping[str, str]) -> None:
        """Note the module's parameters: local name -> name in the model."""
        self.engine = engine
        self.path = path or "model"
        self.module = module
        self.own = dict(own)
        self.names = tuple(self.own.values())
        self._plain: list[Replaced] = [
            (slots, local, engine.in_use(parameter))
            for slots in parameter_slots(module)
            for local, parameter in slots.items()
            if parameter is not None
        ]
        self._calls: list[Call] = []

    def attach(self) -> list[Any]:
        """See `Site.attach`. Nobody's hook comes between these two and the module's own forward.

        FSDP gathers the parameters of a module in a hook that comes before them.
        """
        first = not is_sharded(self.module)
        return [
            self.module.register_forward_pre_hook(Hook(self._before), prepend=first, with_kwargs=True),
            self.module.register_forward_hook(Hook(self._after), prepend=True, with_kwargs=True, always_call=True),
        ]

    def release(self) -> None:
        """See `Site.release`."""
        self.release_places()

    def release_places(self) -> None:
        """See `Site.release_places`."""
        for call in self._calls:
            _put_back(call)
        self._calls.clear()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if torch.compiler.is_compiling():
            return None
        call = Call(args, kwargs)
        self._calls.append(call)
        for slots, local, parameter in self._plain:
            current = slots[local]
            if isinstance(current, Tracked):
                call.replaced.append((slots, local, current))
                slots[local] = parameter
        if not self.engine.listening():
            return None
        if is_tracked_call(args, kwargs):
            call.args, call.kwargs = anchor((args, kwargs))
        self.prepare(call)
        return call.args, call.kwargs

    def prepare(self, call: Call) -> None:
        """A last word before the module runs."""

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.listen_compiled(args, kwargs, output) if self.engine.listening() else None
        if not self._calls:
            return None
        call = self._calls.pop()
        _put_back(call)
        if output is None or not self.engine.listening() or is_tracked_call(args, kwargs):
            return None  # operations on tracked tensors have been followed one by one
        return self.listen(call, args, kwargs, output)

    def listen(self, call: Call, args: Any, kwargs: Any, output: Any) -> Any:
        """Observe a call's output; the arguments are those that the module's own forward got."""
        raise NotImplementedError

    def listen_compiled(self, args: Any, kwargs: Any, output: Any) -> Any:
        """Observe a call's output inside torch.compile; a module that cannot is missed, and that is an error."""
        return None

    def inputs(self, args: Any, kwargs: Any) -> Inputs:
        """The tensors among a call's arguments, in the order of the module's signature."""
        if kwargs:
            bound = inspect.signature(self.module.forward).bind(*args, **kwargs)
            args = tuple(bound.arguments.values())
        return tuple(arg for arg in args if isinstance(arg, Tensor))

    def sees_no_samples(self, tensors: Sequence[Tensor]) -> bool:
        """Whether a call's inputs are the same for all samples, such as position indices."""
        declared = self.engine.layouts.declared(self.path)
        hint = self.engine.batch_hint
        if declared is not None or hint is None or not tensors:
            return declared == "shared" or not tensors
        first = tensors[0]
        if first.requires_grad:
            return False
        if first.dim() == 1 and not first.is_floating_point() and hint > 1 and is_range(first):
            if len(first) == hint:
                raise LayoutError(
                    f"{self.path}: expected inputs that tell samples from positions, got 0, 1, ..., "
                    f"{hint - 1} for {hint} samples; pass layout={{{self.path!r}: 'shared'}} if these are "
                    f"positions, or 'samples-first' if each belongs to a sample"
                )
            return True
        if first.dim() == 0 or hint == 1:
            return first.dim() == 0 or first.shape[0] != 1
        if hint in first.shape[:2] and first.shape[0] != 1:
            return False
        return first.shape[0] % hint != 0

    def share(self, call: Call, output: Any) -> Any:
        """Track the output of a call that sees no samples: it follows from parameters alone."""
        engine, own = self.engine, self.own
        leaves, spec = tree_flatten(output)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.requires_grad:

                def rebuild(parameters: Leaves, i: int = i) -> Tensor:
                    values = {local: parameters[name] for local, name in own.items()}
                    with engine.paused():
                        again = self.again(values, call.args, call.kwargs)
                    value: Tensor = tree_flatten(again)[0][i]
                    return value

                leaves[i] = track(leaf, Origin(engine, tuple(own.values()), rebuild))
        return tree_unflatten(leaves, spec)

    def again(self, state: Mapping[str, Tensor], args: Any, kwargs: Any) -> Any:
        """Run the module on other parameters, up to where its output was observed: before any forward hook."""
        with without_forward_hooks(self.module, before=is_sharded(self.module)):
            return torch.func.functional_call(self.module, dict(state), args, kwargs)


def _put_back(call: Call) -> None:
    for slots, local, tensor in reversed(call.replaced):
        slots[local] = tensor


def is_range(ids: Tensor) -> bool:
    """Whether a vector of integers is 0, 1, 2, ..."""
    return bool(torch.equal(ids, torch.arange(len(ids), device=ids.device, dtype=ids.dtype)))
