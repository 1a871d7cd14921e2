"""Things by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from headway.errors import HeadwayError, MethodError, did_you_mean

Thing = TypeVar("Thing")
Kind = TypeVar("Kind")


class Registry(Generic[Thing]):
    """Things of one kind, each under a name of its own.

    Args:
        what: the kind, for messages.
        error: what is raised.
    """

    def __init__(self, what: str, error: type[HeadwayError] = MethodError) -> None:
        """Start empty."""
        self._what = what
        self._error = error
        self._things: dict[str, Thing] = {}

    def register(self, name: str) -> Callable[[Kind], Kind]:
        """Add a thing, as a decorator.

        Args:
            name: letters, digits, dashes and underscores, so that names can be joined by a plus.

        Raises:
            HeadwayError: the name is taken or not valid.
        """
        if name in self._things:
            raise self._error(f"expected a new name for a {self._what}, got {name!r} twice")
        if not name.replace("-", "_").isidentifier():
            raise self._error(f"expected a name of letters, digits, dashes and underscores, got {name!r}")

        def add(thing: Kind) -> Kind:
            self._things[name] = thing  # type: ignore[assignment]
            return thing

        return add

    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._things)

    def find(self, name: str) -> Thing:
        """The thing of that name.

        Raises:
            HeadwayError: there is none; the message lists the names.
        """
        if name not in self._things:
            hint = did_you_mean(name, self._things)
            raise self._error(f"expected a {self._what} out of {', '.join(self._things)}, got {name!r}{hint}")
        return self._things[name]
