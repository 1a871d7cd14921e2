from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runs.conftest import dummies, ray_cluster, recorder, store

__all__ = ["dummies", "ray_cluster", "recorder", "store"]


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes, or changes, a small file system: called with mount's options, such as "size=1m" or "ro"."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def change(options: str) -> Path:
        try:
            if os.path.ismount(folder):
                _mount("-o", f"remount,{options}", str(folder))
            else:
                _mount("-t", "tmpfs", "-o", options, "none", str(folder))
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("mounting a small file system is not permitted here")
        return folder

    yield change
    with contextlib.suppress(OSError):
        subprocess.run(["umount", str(folder)], check=False, capture_output=True)
