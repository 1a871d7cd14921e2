"""What all benchmarks share: the machine that they ran on, their files, and the pages of the docs that quote them."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from headway import __version__
from headway.errors import HeadwayError

PEERS = ("opacus", "backpack-for-pytorch")


@dataclass(frozen=True)
class Machine:
    """Where and with what a benchmark ran, so that numbers can be placed."""

    date: str
    cpu: str
    cores: int
    threads: int
    python: str
    versions: Mapping[str, str]


def describe(threads: int = 1) -> Machine:
    """This machine, today."""
    versions = {"headway": __version__, "torch": torch.__version__}
    for package in PEERS:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    date = datetime.now(timezone.utc).date().isoformat()
    return Machine(date, cpu_name(), available_cores(), threads, platform.python_version(), versions)


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model name, where the system tells it."""
    lines: Sequence[str] = info.read_text("utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


class Neighbours:
    """How busy other processes keep the machine, from its creation on.

    A step on all cores waits for the slowest of its threads. Where another process takes part of a core, times on
    several threads can be wrong by a factor, so this belongs to a result.

    Args:
        stat: the system's account of processor time; where there is none, nothing is known.
    """

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._start = self._read()

    def cores(self) -> float | None:
        """The cores that others have kept busy on average, or None where the system does not tell."""
        if self._start is None or (now := self._read()) is None:
            return None
        everyone, own, wall = (late - early for late, early in zip(now, self._start, strict=True))
        return max(0.0, everyone - own) / wall if wall > 0 else 0.0

    def _read(self) -> tuple[float, float, float] | None:
        """Seconds of work by everyone, by this process, and on the clock."""
        if not self._stat.exists():
            return None
        user, nice, system, _idle, _wait, *interrupts = map(int, self._stat.read_text().split()[1:9])
        everyone = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
        return everyone, time.process_time(), time.perf_counter()

    def say(self) -> float | None:
        """Print how busy they were, and return `cores`."""
        busy = self.cores()
        if busy is not None:
            print(f"other processes kept {busy:.1f} cores busy")
        return busy


def write_json(path: Path | None, content: Mapping[str, Any]) -> None:
    """Write numbers to a file, in a folder that is made if need be; None writes nothing."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def quoted(page: str, name: str, text: str) -> str:
    """A page with a text between `<!-- name: begin -->` and `<!-- name: end -->`, in the place of what was there.

    Raises:
        HeadwayError: the page does not have both marks.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise HeadwayError(f"expected a page with the lines {begin} and {end}, got one without")
    return f"{before}{begin}\n{text}\n{end}{after}"
