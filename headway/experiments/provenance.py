"""Which code a run was made with."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def code_fingerprint() -> str:
    """The first digits of the sha256 of all modules of the package: the same code has the same, wherever it is."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py"), key=lambda file: file.relative_to(root).as_posix()):
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
