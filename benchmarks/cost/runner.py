"""The whole benchmark: every case, first its times, then its memory."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TextIO

import torch

from benchmarks.common import Neighbours, available_cores, describe
from benchmarks.cost.cases import CASES, Case, Data
from benchmarks.cost.measure import PLAIN, Budget, Round, measure_memory, measure_times, summarise
from benchmarks.cost.results import CaseResult, Memory, Result, Skipped
from benchmarks.cost.variants import VARIANTS, Step, Unsupported, try_step

LIMIT = 2 * 2**30
"""A peer is not measured where its per-sample gradients alone take more bytes than this."""


@dataclass(frozen=True)
class Settings:
    """What to measure, and how long.

    Attributes:
        cases: the cases.
        variants: the keys of the variants; the plain step is always measured.
        rounds: at most so many rounds per case.
        seconds: of measuring the times of one case.
        threads: that torch may use; None for one per core.
        memory: measure the memory too.
        seed: of the data.
    """

    cases: tuple[Case, ...] = tuple(CASES.values())
    variants: tuple[str, ...] = tuple(VARIANTS)
    rounds: int = 200
    seconds: float = 60.0
    threads: int | None = None
    memory: bool = True
    seed: int = 0

    def ordered(self) -> list[str]:
        """The variants in the order of the tables, with the plain step."""
        return [key for key in VARIANTS if key in (PLAIN, *self.variants)]


def quick(settings: Settings) -> Settings:
    """The same in about half a minute: two cases, one peer, memory at one batch size."""
    cases = tuple(replace(CASES[key], memory_batches=(CASES[key].batch,)) for key in ("a", "c"))
    return replace(settings, cases=cases, variants=("plain", "headway", "torch.func"), seconds=8.0)


class Progress:
    """One line that is rewritten on a terminal; elsewhere a line now and then.

    Args:
        cases: how many there are.
        seconds: a first guess at the time of each; later, those that are done tell.
        stream: where to write.
        clock: the time in seconds.
    """

    def __init__(
        self,
        cases: int,
        seconds: float,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._cases = cases
        self._done = 0
        self._guess = seconds
        self._start = self._case_start = clock()
        self._rewrite = self._stream.isatty()
        self._shown = -1e9

    def say(self, text: str) -> None:
        """Show what begins now."""
        self._write(text)

    def tick(self, text: str) -> None:
        """Show how far it is, unless something was shown just before."""
        if self._clock() - self._shown >= (0.2 if self._rewrite else 10.0):
            self._write(text)

    def case_done(self) -> None:
        """Note that a case is finished."""
        self._done += 1
        self._case_start = self._clock()
        self._guess = (self._case_start - self._start) / self._done

    def left(self) -> float:
        """The seconds that are left, by what the cases so far have taken."""
        of_this = max(0.0, self._guess - (self._clock() - self._case_start))
        return of_this + self._guess * max(0, self._cases - self._done - 1)

    def close(self) -> None:
        """Clear the line."""
        if self._rewrite:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def _write(self, text: str) -> None:
        line = f"{text} ({duration(self.left())} left)"
        self._stream.write(f"\r\x1b[2K{line}" if self._rewrite else f"{line}\n")
        self._stream.flush()
        self._shown = self._clock()


def duration(seconds: float) -> str:
    """A rough duration: "40 s", "3 min"."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


@dataclass
class _Found:
    """What is known about a case so far; it survives an interruption."""

    case: Case
    rounds: list[Round] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    busy: float | None = None

    def result(self) -> CaseResult:
        case = self.case
        size = sum(p.numel() * p.element_size() for p in case.build().parameters())
        measured = summarise(self.rounds), tuple(self.memories), tuple(self.skipped)
        return CaseResult(case.key, case.title, case.batch, size, case.goal, *measured, case.peer_goal, self.busy)


def run(settings: Settings, progress: Progress) -> Result:
    """Run the benchmark. Interrupted with Ctrl-C, it returns what was measured so far.

    Args:
        settings: what to measure.
        progress: told what is going on.
    """
    found: list[_Found] = []
    complete = False
    threads = settings.threads or available_cores()
    with _threads(threads):
        try:
            for case in settings.cases:
                found.append(_Found(case))
                neighbours = Neighbours()
                _times(found[-1], settings, progress)
                found[-1].busy = neighbours.cores()
                if settings.memory:
                    _memories(found[-1], settings, progress)
                progress.case_done()
            complete = True
        except KeyboardInterrupt:
            pass
        finally:
            progress.close()
    cases = tuple(each.result() for each in found if each.rounds or each.skipped)
    keys = {"cases": [case.key for case in settings.cases], "variants": settings.ordered()}
    options = {**asdict(replace(settings, cases=())), **keys, "threads": threads}
    return Result(describe(threads), options, cases, complete)


def _times(found: _Found, settings: Settings, progress: Progress) -> None:
    case = found.case
    generator = torch.Generator().manual_seed(settings.seed)

    def draw() -> Data:
        return case.data(case.batch, generator)

    steps: dict[str, Step] = {}
    for key in settings.ordered():
        progress.say(f"case {case.key}: building {key}")
        try:
            steps[key] = try_step(VARIANTS[key], case, draw())
        except Unsupported as reason:
            found.skipped.append(Skipped(key, str(reason)))

    def watch(done: int, key: str) -> None:
        progress.tick(f"case {case.key}: round {done + 1}, {key}")

    progress.say(f"case {case.key}: warming up")
    measure_times(steps, draw, Budget(settings.rounds, settings.seconds), found.rounds, watch)


def _memories(found: _Found, settings: Settings, progress: Progress) -> None:
    case = found.case
    unsupported = {each.variant for each in found.skipped}
    numbers = sum(p.numel() for p in case.build().parameters())
    for batch in case.memory_batches:
        data = case.data(batch, torch.Generator().manual_seed(settings.seed))
        plain: Memory | None = None
        for key in [key for key in settings.ordered() if key not in unsupported]:
            variant = VARIANTS[key]
            if variant.peer and 4 * batch * numbers > LIMIT:
                gib = 4 * batch * numbers / 2**30
                reason = f"the per-sample gradients would take {gib:.1f} GiB"
                found.skipped.append(Skipped(key, reason, batch))
                continue
            progress.say(f"case {case.key}: memory of {key} at batch {batch}")
            gc.collect()
            memory = measure_memory(variant, case, data)
            plain = plain or memory
            extra = memory.state - plain.state, memory.peak - plain.peak
            found.memories.append(replace(memory, extra_state=extra[0], extra_peak=extra[1]))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch use so many threads, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
