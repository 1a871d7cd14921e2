"""Containers: modules with children, whose forward may use parameters directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from headway.grads.direct import Tracked, parameter_origin, track
from headway.grads.hooks import Hook
from headway.grads.sites import parameter_slots

if TYPE_CHECKING:
    from headway.grads.engine import Engine


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile runs a module: by `module.compile()`, or as what `torch.compile(module)` gave."""
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod")


class Container:
    """A module with children, whose forward may use parameters directly.

    The outermost container that runs replaces all parameters below it by tracked aliases for the time of
    its forward; modules that have a site of their own put the plain ones back for theirs.
    """

    def __init__(self, engine: Engine, path: str, module: nn.Module) -> None:
        """Find the parameters below the module."""
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

    def release(self) -> None:
        """See `Site.release`."""
        self.release_places()

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
