"""What experiments with torch share: threads, memory, what it computes with, and how a run is kept meanwhile."""

from __future__ import annotations

import ctypes
import io
import json
import os
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, NoReturn, cast

import torch

from headway.errors import SpecError
from headway.runs import Run, RunSpec, Write
from headway.runs.experiments import WEIGHTS_FILE, Context, Stopped, plugin_facts
from headway.runs.provenance import continued, in_words, provenance


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums come out in one order, so that a run gives the same numbers wherever it is carried out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds_of(work: Callable[[], Any], times: int = 1) -> float:
    """The seconds that a call takes, on average over some."""
    return timeit.timeit(work, number=times) / times


def planned_length(spec: RunSpec, unit: str) -> int:
    """The length of a run, such as its epochs."""
    length = spec.params[unit]
    if not isinstance(length, int):
        raise SpecError(f"expected a whole number of {unit}, got {length!r}")
    return length


def made_here(device: str, *packages: str) -> dict[str, str]:
    """What a run is made with in this process: `provenance` with torch, the device, the processor and plugins.

    Its instructions are those of torch, such as "AVX2", and of oneDNN, if it was told to use something else.
    """
    own, other = torch.backends.cpu.get_cpu_capability(), os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    instructions = own if other.upper() in ("", own) else f"{own}, oneDNN {other}"
    return {**provenance("torch", *packages), "device": device, "instructions": instructions, **plugin_facts()}


_KEPT = {"M_TRIM_THRESHOLD": (-1, 2**30), "M_MMAP_THRESHOLD": (-3, 2**30), "M_TOP_PAD": (-2, 2**26)}


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
    for option, value in _KEPT.values():
        mallopt(option, value)


class ResumableRun:
    """A run with its progress, its checkpoints, and what it was made with.

    The packages are those that its numbers depend on, besides torch.
    """

    def __init__(self, run: Run, context: Context, *packages: str) -> None:
        self._run, self._context = run, context
        self._made_with = [made_here(context.device, *packages)]

    def restored(self) -> dict[str, Any] | None:
        """The state of the last checkpoint, if the run has one."""
        checkpoint = self._run.restore()
        if checkpoint is None:
            return None
        state = load_state(checkpoint.payload)
        self._made_with = continued(state.pop("provenance", [{}]), self._made_with[-1])
        return state

    def begin(self, done: int, total: int, step: int) -> None:
        """Say where the run begins: how far it is, out of how much, and at which step, which checkpoints count."""
        self._first, self._total, self._start = done, total, time.monotonic()
        self._saved, self._last = step, self._start
        self._run.progress(done, total)
        if self._context.report is not None and done:
            self._context.report(done, total, {})

    def progress(self, done: int, values: dict[str, float]) -> None:
        """Say how far the run is, and what it has reached."""
        speed = (done - self._first) / max(time.monotonic() - self._start, 1e-9)
        self._run.progress(done, self._total, values, speed)
        if self._context.report is not None:
            self._context.report(done, self._total, values)

    def save(self, step: int, state: Callable[[], Mapping[str, Any]], is_last: bool = False) -> None:
        """Write a checkpoint, if it is time to or the last one, and there is something new."""
        is_due = is_last or time.monotonic() - self._last >= self._context.checkpoint_seconds
        if is_due and step > self._saved:
            self._run.checkpoint(step, state_writer({**state(), "provenance": self._made_with}))
            self._saved, self._last = step, time.monotonic()

    def stop(self, step: int, state: Callable[[], Mapping[str, Any]]) -> NoReturn:
        """Write a checkpoint and stop, as was asked for."""
        self.save(step, state, is_last=True)
        raise Stopped("stopped on request")

    def finish(self, weights: Any, **facts: Any) -> None:
        """Keep the final weights, if they are wanted, and what the run was made with; then it is done."""
        if self._context.keep_weights:
            self._run.save(WEIGHTS_FILE, state_writer(weights))
        content = json.dumps({**in_words(self._made_with), **facts}).encode()
        self._run.save("provenance.json", lambda file: file.write(content))
        self._run.finish()


def load_state(content: bytes) -> dict[str, Any]:
    """A state that was saved; its tensors are on the processor."""
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def state_writer(state: Any) -> Write:
    """A function that writes a state to a file."""
    return lambda file: torch.save(state, cast(IO[bytes], file))
