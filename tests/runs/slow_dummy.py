"""The dummy experiment, whose import takes its time in a worker: until there is a file "go" in a folder."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

from tests.runs.dummy import SLOW_FOLDER, estimate, run

__all__ = ["estimate", "run"]

if multiprocessing.parent_process() is not None:
    _folder = Path(os.environ[SLOW_FOLDER])
    (_folder / f"importing-{os.getpid()}").touch()
    while not (_folder / "go").exists():
        time.sleep(0.01)
