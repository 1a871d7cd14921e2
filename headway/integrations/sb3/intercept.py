"""Standing between an algorithm and its buffer, for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Intercept:
    """Replaces a method of one object, and puts the class's own back.

    Nothing but the object's own dictionary changes, and only between `start` and `stop`: a buffer that is
    pickled at another time is as it was made.

    Args:
        name: of the method.
        instead: called with the original method and the arguments.
    """

    def __init__(self, name: str, instead: Callable[..., Any]) -> None:
        """Keep both; nothing is replaced yet."""
        self.name = name
        self._instead = instead
        self._target: Any = None

    def start(self, target: Any) -> None:
        """Stand in for the method of this object."""
        self.stop()
        original = getattr(target, self.name)

        def stand_in(*args: Any, **options: Any) -> Any:
            return self._instead(original, *args, **options)

        setattr(target, self.name, stand_in)
        self._target, self._stand_in = target, stand_in

    def stop(self) -> None:
        """Put the method back, if it is replaced."""
        if self._target is not None and vars(self._target).get(self.name) is self._stand_in:
            delattr(self._target, self.name)
        self._target = None
