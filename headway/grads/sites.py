"""Sites: the modules of a model that the engine watches, and what it does at each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from headway.errors import LayoutError
from headway.grads.direct import Tracked, anchor, is_tracked_call, parameter_origin, track
from headway.grads.fallback import Leaves, Surroundings
from headway.grads.hooks import Forward, Hook, without_forward_hooks
from headway.grads.operations import Origin
from headway.grads.passes import Contribution, Pass
from headway.grads.persample import PerSample
from headway.grads.registry import Inputs, is_sharded

if TYPE_CHECKING:
    from headway.grads.engine import Engine


Slots = dict[str, Any]
"""A module's parameters by their own names; for the time of a forward, other tensors may stand in for them."""

PartForms = Callable[[Sequence[Tensor], Sequence[Tensor]], Mapping[str, PerSample]]
"""See `Part`."""

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


def parameter_slots(module: nn.Module) -> list[Slots]:
    """The places of all parameters of a module and below."""
    return [owner._parameters for owner in module.modules()]


class Site:
    """A watched module."""

    def attach(self) -> list[Any]:
        """Register hooks; return their handles."""
        raise NotImplementedError

    def release(self) -> None:
        """Undo whatever removing the handles does not undo."""
        self.release_places()

    def release_places(self) -> None:
        """Put the parameters back in their places, after a forward that was interrupted."""
        raise NotImplementedError


class OwnerSite(Site):
    """A module whose own parameters are scored as one unit: what its kinds have in common."""

    def __init__(self, engine: Engine, path: str, module: nn.Module, own: Mapping[str, str]) -> None:
        self.engine = engine
        self.path = path or "model"
        self.module = module
        self.own = dict(own)
        self.names = tuple(self.own.values())
        self.size = sum(engine.parameters[name].numel() for name in self.names)
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
                    return tree_flatten(again)[0][i]

                leaves[i] = track(leaf, Origin(engine, tuple(own.values()), rebuild))
        return tree_unflatten(leaves, spec)

    def again(self, state: Mapping[str, Tensor], args: Any, kwargs: Any) -> Any:
        """Run the module on other parameters, up to where its output was observed: before any forward hook."""
        with without_forward_hooks(self.module, before=is_sharded(self.module)):
            return torch.func.functional_call(self.module, dict(state), args, kwargs)


class UnitSite(OwnerSite):
    """A module whose forward is replaced by the same computation made of parts, which are listened to."""

    def attach(self) -> list[Any]:
        """See `Site.attach`."""
        self.module.forward = Forward(self.module, self.forward)
        return super().attach()

    def release(self) -> None:
        """Give the module its own forward back."""
        super().release()
        vars(self.module).pop("forward", None)

    def listen(self, call: Call, args: Any, kwargs: Any, output: Any) -> Any:
        """The parts have listened already."""
        return output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What takes the place of the module's forward."""
        raise NotImplementedError


class Part:
    """A listener on a part of a unit, whose inputs and output gradients give the gradients of some parameters.

    Args:
        site: the unit.
        own: the part's parameters: local name -> name in the model.
        forms: (inputs, gradients at the outputs) of a block of samples -> gradients by local name.
        path: the part as layouts name it; the unit unless given.
        footprint: see `Contribution`; the numbers in the parameters unless given.
    """

    def __init__(
        self, site: UnitSite, own: Mapping[str, str], forms: PartForms, path: str = "", footprint: int = 0
    ) -> None:
        self.engine, self.path, self.names = site.engine, path or site.path, tuple(own.values())
        self._own, self._forms = own, forms
        self._size = sum(self.engine.parameters[name].numel() for name in self.names)
        self._footprint = footprint or self._size

    def collect(self, current: Pass, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""

        def block(start: int, stop: int) -> dict[str, PerSample]:
            forms = self._forms([tensor[start:stop] for tensor in saved], [grad[start:stop] for grad in grads])
            return {name: forms[local] for local, name in self._own.items()}

        each = self.engine.layouts.require_rows(self.path, grads[0].shape, current.samples)
        current.add(Contribution(self.names, self._footprint, block).folded(each, self._size))


class Container(Site):
    """A module with children, whose forward may use parameters directly.

    The outermost container that runs replaces all parameters below it by tracked aliases for the time of
    its forward; modules that have a site of their own put the plain ones back for theirs.
    """

    def __init__(self, engine: Engine, path: str, module: nn.Module) -> None:
        self.engine = engine
        self.module = module
        self._places = [
            (slots, local, engine.in_use(parameter), parameter_origin(engine, name))
            for slots in parameter_slots(module)
            for local, parameter in slots.items()
            if parameter is not None and (name := engine.name_of(parameter)) is not None
        ]
        self._modules = list(module.modules())[1:]
        self._entered: list[bool] = []

    def attach(self) -> list[Any]:
        """See `Site.attach`."""
        return [
            self.module.register_forward_pre_hook(Hook(self._enter), with_kwargs=True),
            self.module.register_forward_hook(Hook(self._leave), always_call=True),
        ]

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        engine = self.engine
        outermost = engine.depth == 0 and engine.listening()
        self._entered.append(outermost)
        if not outermost:
            if engine.sharding is not None and engine.listening():
                self.replace()  # FSDP has put parameters in their places since
            return
        engine.depth += 1
        if not engine.in_backward:
            engine.set_batch_hint((args, kwargs))
        self.replace()

    def replace(self) -> None:
        """Put aliases in the parameters' places, except where torch.compile would look into them."""
        compiled = [module for module in self._modules if is_compiled(module)]
        hidden = {id(slots) for module in compiled for slots in parameter_slots(module)}
        for slots, local, parameter, origin in self._places:
            # somebody may run the module on other tensors (functional_call)
            if slots[local] is parameter and id(slots) not in hidden:
                slots[local] = track(parameter, origin)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not (self._entered and self._entered.pop()):
            return
        self.engine.depth -= 1
        self._restore()

    def release_places(self) -> None:
        """See `Site.release_places`."""
        self._entered.clear()
        self._restore()

    def _restore(self) -> None:
        for slots, local, parameter, _ in self._places:
            if isinstance(slots[local], Tracked):
                slots[local] = parameter


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile runs a module: by `module.compile()`, or as what `torch.compile(module)` gave."""
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod")


def _put_back(call: Call) -> None:
    for slots, local, tensor in reversed(call.replaced):
        slots[local] = tensor


def is_range(ids: Tensor) -> bool:
    """Whether a vector of integers is 0, 1, 2, ..."""
    return bool(torch.equal(ids, torch.arange(len(ids), device=ids.device, dtype=ids.dtype)))
