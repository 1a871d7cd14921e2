"""What experiments with torch share: how many threads it uses, and how states are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

import torch

from headway.runs import Write


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums come out in one order, so that a run gives the same numbers wherever it is carried out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def saves(state: Any) -> Write:
    """A function that writes a state to a file."""
    return lambda file: torch.save(state, cast(IO[bytes], file))
