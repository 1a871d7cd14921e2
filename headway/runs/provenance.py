"""Which code a run was made with."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from itertools import groupby
from pathlib import Path

NUMBERS_COME_FROM = ("data", "grads", "meter.py", "moments", "rl", "selection", "signals", "study")
"""The parts whose code decides the numbers of a run."""
UNKNOWN_VERSION = "unknown"
UNKNOWN = "not recorded"
"""What a run was made with up to a checkpoint that does not tell."""


@cache
def code_fingerprint() -> str:
    """The first digits of the sha256 of all modules that decide a run's numbers: equal code has equal digits anywhere.

    The files may change while a process lives, but not the code that it has imported. So what counts is the first call,
    which `find_experiment` makes when it imports an experiment.
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py"), key=lambda file: file.relative_to(root).as_posix()):
        if file.relative_to(root).parts[0] not in NUMBERS_COME_FROM:
            continue
        digest.update(f"{file.relative_to(root).as_posix()}\n".encode())
        digest.update(file.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:12]


def provenance(*packages: str) -> dict[str, str]:
    """The versions of headway, Python and some packages, and the fingerprint of headway's code."""
    return {
        "headway": version_of("headway"),
        "code": code_fingerprint(),
        "python": platform.python_version(),
        **{name: version_of(name) for name in packages},
    }


def continued(earlier: Sequence[Mapping[str, str]], now: Mapping[str, str]) -> list[dict[str, str]]:
    """What a run is made with from a checkpoint on: one entry for all processes in a row that have the same."""
    new = [] if earlier and earlier[-1] == now else [now]
    return [dict(facts) for facts in (*earlier, *new)]


def in_words(history: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What a run was made with, by name; where that has changed, in turn, such as "2.12.0 then 2.13.0"."""
    values = {name: [facts.get(name, UNKNOWN) for facts in history] for name in history[-1]}
    return {name: " then ".join(value for value, _ in groupby(each)) for name, each in values.items()}


@cache
def version_of(package: str) -> str:
    """The version of a package; kept, because another one may be installed while a process lives.

    Args:
        package: its name. headway's distribution is called headway-torch.

    Returns:
        "unknown" for one that is not installed, such as headway itself when it is used from a checkout.
    """
    try:
        return metadata.version("headway-torch" if package == "headway" else package)
    except metadata.PackageNotFoundError:
        return UNKNOWN_VERSION
