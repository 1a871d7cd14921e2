"""The examples of the reinforcement learning adapters run, in their quick form."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "needs", "expected"),
    [
        ("gymnasium_wrapper", "gymnasium", "the task's return is -200"),
        ("rlexplore", "gymnasium", "2,560 steps  return"),
        ("sb3_dqn", "stable_baselines3", "cells of 400:"),
        ("sb3_ppo", "stable_baselines3", "saved, loaded and trained on: 6,144 steps"),
    ],
)
def test_an_example_runs(
    name: str, needs: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(needs)
    path = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--quick"])
    runpy.run_path(str(path), run_name="__main__")
    assert expected in capsys.readouterr().out
