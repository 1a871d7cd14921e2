"""The examples of the reinforcement learning adapters run, in their quick form."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

CAUTION = "not which of the two agents is better"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "needs", "expected", "last"),
    [
        ("gymnasium_wrapper", "gymnasium", "the task's return is -200", "RND rewards what is rare"),
        ("rlexplore", "gymnasium", "2,560 steps  return", "intrinsic"),
        ("sb3_dqn", "stable_baselines3", "cells of 400:", CAUTION),
        (
            "sb3_ppo",
            "stable_baselines3",
            "saved, loaded and trained on: 6,144 steps",
            CAUTION,
        ),
    ],
)
def test_an_example_runs(
    name: str, needs: str, expected: str, last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(needs)
    path = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path), "--quick"])
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert expected in printed
    assert last in printed.splitlines()[-1]  # what the numbers do not say
    assert "\r" not in printed  # it is no terminal
