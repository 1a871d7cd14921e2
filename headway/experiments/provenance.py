"""Which code a run was made with."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

NO_PART_OF_RUNS = frozenset({"analysis", "bench", "cli.py", "integrations", "telemetry"})
"""What can change without a number of a run changing."""


@cache
def code_fingerprint() -> str:
    """The first digits of the sha256 of all modules that a run may use: the same code has the same, wherever it is."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py"), key=lambda file: file.relative_to(root).as_posix()):
        if file.relative_to(root).parts[0] in NO_PART_OF_RUNS:
            continue
        digest.update(f"{file.relative_to(root).as_posix()}\n".encode())
        digest.update(file.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:12]


def provenance(*packages: str) -> dict[str, str]:
    """The versions of headway, Python and some packages, and the fingerprint of headway's code."""
    return {
        "headway": version("headway"),
        "code": code_fingerprint(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
