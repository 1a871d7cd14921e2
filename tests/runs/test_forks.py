from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.forks import TASKS

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("task", TASKS)
def test_crashes_and_races(task: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.runs.forks", task, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr + result.stdout
