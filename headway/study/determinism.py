"""What experiments with torch share: its threads, its memory, what it computes with, and how states are written."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, cast

import torch

from headway.runs import Write
from headway.runs.experiments import plugin_facts
from headway.runs.provenance import provenance


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums come out in one order, so that a run gives the same numbers wherever it is carried out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def made_here(device: str, *packages: str) -> dict[str, str]:
    """What a run is made with in this process: `provenance` with torch, the device, the processor and plugins."""
    facts = {**provenance("torch", *packages), "device": device, "instructions": _instructions()}
    return {**facts, **plugin_facts()}


def _instructions() -> str:
    """What torch computes with on the processor, such as "AVX2"; and oneDNN, if it was told to use something else."""
    own, other = torch.backends.cpu.get_cpu_capability(), os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    return own if other.upper() in ("", own) else f"{own}, oneDNN {other}"


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT, _PADDING = 2**30, 2**26


def keep_memory() -> None:
    """Let the process keep memory that it frees, up to a gigabyte, for as long as it lives.

    The GNU C library hands large blocks back to the system at once, and the system clears every page of the next one.
    A training step on convolutions takes and frees dozens of blocks of some megabytes: without this, much
    time goes into clearing pages. On other systems nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    for option, value in ((_M_TRIM_THRESHOLD, _KEPT), (_M_MMAP_THRESHOLD, _KEPT), (_M_TOP_PAD, _PADDING)):
        mallopt(option, value)


def saves_json(facts: Mapping[str, Any]) -> Write:
    """A function that writes facts to a file."""
    content = json.dumps(facts).encode()
    return lambda file: file.write(content)


def saves(state: Any) -> Write:
    """A function that writes a state to a file."""
    return lambda file: torch.save(state, cast(IO[bytes], file))
