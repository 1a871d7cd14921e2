"""Where a benchmark runs: the processor, the cores and the versions, so that numbers can be placed."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from headway import __version__
from headway.bench.results import Machine

PEERS = ("opacus", "backpack-for-pytorch")


def describe(threads: int) -> Machine:
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
