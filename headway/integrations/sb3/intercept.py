"""Standing between an algorithm and its buffer, for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class StandIn:
    """Called in a method's place; to pickle and to copy it is the method itself.

    Training can be broken off at any moment, so whoever saves the object then must get it as it was made.

    Args:
        target: whose method it is.
        name: of the method.
        instead: called with the original method and the arguments.
    """

    def __init__(self, target: Any, name: str, instead: Callable[..., Any]) -> None:
        self._target, self._name = target, name
        self._original = getattr(target, name)
        self._instead = instead

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the other function, and hand the original to it."""
        return self._instead(self._original, *args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """As a bound method: its name is looked up in the copy, which has no stand-in at that moment."""
        return getattr, (self._target, self._name)


class Intercept:
    """Replaces a method of one object, and puts the class's own back.

    Nothing but the object's own dictionary changes, and only between `start` and `stop`.

    Args:
        name: of the method.
        instead: called with the original method and the arguments.
    """

    def __init__(self, name: str, instead: Callable[..., Any]) -> None:
        self.name = name
        self._instead = instead
        self._target: Any = None

    def start(self, target: Any) -> None:
        """Stand in for the method of this object."""
        self.stop()
        self._target, self._stand_in = target, StandIn(target, self.name, self._instead)
        setattr(target, self.name, self._stand_in)

    def stop(self) -> None:
        """Put the method back, if it is replaced."""
        if self._target is not None and vars(self._target).get(self.name) is self._stand_in:
            delattr(self._target, self.name)
        self._target = None
