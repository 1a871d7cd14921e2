"""When the scores of a batch are checked against autograd."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal, get_args

from headway.errors import LossError, warn

Check = Literal["auto", "always", "first", "never"] | int
"""Which batches are checked: see `Schedule`."""

_RARELY = 1024
"""After so many batches, each that is a multiple of it is checked."""

_PATIENCE = 64
"""After so many batches in a row that are due and cannot be checked, for NaN or infinity, the user is told."""

_MOST_SITUATIONS = 4096
"""Situations that are remembered."""


class Schedule:
    """Which batches are checked.

    Args:
        when: "auto" is the first batch of every situation, and batches 1, 2, 4, ..., 1024, 2048, 3072, ... of the meter
            and of each situation; "always" is every batch, a whole number k the first and every k-th batch, "first" the
            first of every situation, "never" none.

    Raises:
        LossError: none of these.
    """

    def __init__(self, when: Check) -> None:
        names = get_args(get_args(Check)[0])
        if when not in names and (isinstance(when, (bool, str)) or not isinstance(when, int) or when < 1):
            known = ", ".join(map(repr, names))
            raise LossError(f"expected check to be one of {known}, or a whole number from 1, got {when!r}")
        self.when = when
        self.batches = 0
        self._seen: dict[Hashable, int] = {}
        self._due = False  # a check that was due has not been made
        self._postponed = 0

    def expects(self) -> bool:
        """Whether the next batch will be checked whatever its situation."""
        return self.when != "never" and (self._due or self._falls(self.batches + 1))

    def take(self, situation: Hashable) -> bool:
        """Count a batch, and tell whether it is to be checked."""
        expected = self.expects()
        self.batches += 1
        self._seen[situation] = seen = self._seen.pop(situation, 0) + 1  # the latest stand last
        if len(self._seen) > _MOST_SITUATIONS:
            del self._seen[next(iter(self._seen))]
        by_situation = isinstance(self.when, str) and (seen == 1 or self._falls(seen))
        self._due = self.when != "never" and (expected or by_situation)
        return self._due

    def _falls(self, count: int) -> bool:
        if self.when == "always":
            return True
        if self.when == "auto":
            return count % _RARELY == 0 or (count < _RARELY and count & (count - 1) == 0)
        return isinstance(self.when, int) and (count == 1 or count % self.when == 0)

    def done(self, situation: Hashable, compared: bool) -> None:
        """Note whether a check that was due could be made; if not, the next batch is checked instead.

        After an error neither is noted, and the next batch is checked too.
        """
        if compared:
            self._due, self._postponed = False, 0
            return
        self._postponed += 1
        self._seen[situation] = max(0, self._seen.get(situation, 0) - 1)
        if self._postponed == _PATIENCE:
            warn(
                f"the scores of {_PATIENCE} batches in a row could not be checked, because their gradients, or the "
                f"squares of these, are not finite"
            )
