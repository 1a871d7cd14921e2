"""Options with several values, which may also be given several times."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


class Several(argparse.Action):
    """Keeps the values of every time that an option is given; only then does its default go."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Take the values of one time."""
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [*(() if before is self.default else before), *(values or ())])
