"""Entries by name, of which users may add their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from headway.errors import HeadwayError, MethodError, check_known

Entry = TypeVar("Entry")
Added = TypeVar("Added")


class Registry(Generic[Entry]):
    """Entries of one kind, each under a name of its own.

    Args:
        what: the kind, for messages.
        error: what is raised.
    """

    def __init__(self, what: str, error: type[HeadwayError] = MethodError) -> None:
        """Start empty."""
        self._what = what
        self._error = error
        self._entries: dict[str, Entry] = {}

    def register(self, name: str) -> Callable[[Added], Added]:
        """Add an entry, as a decorator.

        Args:
            name: letters, digits, dashes and underscores, so that names can be joined by a plus.

        Raises:
            HeadwayError: the name is taken or not valid.
        """
        if name in self._entries:
            raise self._error(f"expected a new name for a {self._what}, got {name!r} twice")
        if not name.replace("-", "_").isidentifier():
            raise self._error(f"expected a name of letters, digits, dashes and underscores, got {name!r}")

        def add(entry: Added) -> Added:
            self._entries[name] = entry  # type: ignore[assignment]
            return entry

        return add

    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._entries)

    def find(self, name: str) -> Entry:
        """The entry of that name.

        Raises:
            HeadwayError: there is none; the message lists the names.
        """
        check_known(f"a {self._what}", [name], self._entries, self._error)
        return self._entries[name]
