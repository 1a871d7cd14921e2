"""What a metered model carries: hooks that stay behind when the model is copied or saved.

A copy of a model has hooks where the model has them. The meter knows nothing of the copy, and could never detach from
it, so what the copy gets are stand-ins that do nothing. They are made of Python's own library: a saved model can be
loaded where headway is not installed.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import nn


class Hook:
    """A function as a hook on a module, which copies and pickles as a function that does nothing."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return self.function(*args)

    def __deepcopy__(self, memo: Any) -> Callable[..., None]:
        """A function that does nothing."""
        return nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        """See `__deepcopy__`."""
        return getattr, (nullcontext(), "__exit__")


class Forward:
    """A function in the place of a module's forward, which copies and pickles as the forward of the copy's class."""

    def __init__(self, module: nn.Module, function: Callable[..., Any]) -> None:
        self.module = module
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> Callable[..., Any]:
        """The forward that the copy would have by itself."""
        return partial(type(self.module).forward, copy.deepcopy(self.module, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        """See `__deepcopy__`."""
        return partial, (type(self.module).forward, self.module)


@contextmanager
def without_forward_hooks(module: nn.Module, before: bool = False) -> Iterator[None]:
    """Let a module run without the hooks on its output, and without those `before` its forward if that is said."""
    hooks, module._forward_hooks = module._forward_hooks, OrderedDict()
    earlier = module._forward_pre_hooks
    module._forward_pre_hooks = OrderedDict() if before else earlier
    try:
        yield
    finally:
        module._forward_hooks, module._forward_pre_hooks = hooks, earlier
