from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_process_that_was_stopped_at_any_instant_undoes_nothing(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.runs.stalls", kind, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr + result.stdout
