"""The demo's table, by hand and on small runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from headway.experiments import controlled, demo
from headway.experiments.base import Context
from headway.experiments.commands.demo import table
from headway.experiments.protocol import Protocol
from headway.runs import RunStore


def test_the_interval_by_hand() -> None:
    """1, 2, 3: mean 2, deviation 1, t(0.975, 2) = 4.3027, half-width 4.3027 / sqrt(3)."""
    mean, half = demo.mean_interval([1.0, 2.0, 3.0])
    assert mean == 2
    assert half == pytest.approx(4.302653 / 3**0.5, abs=1e-5)
    assert demo.mean_interval([5.0, 5.0]) == (5.0, 0.0)


def test_the_demo_has_36_different_runs() -> None:
    runs = demo.demo_specs()
    assert len({spec.run_id for spec in runs}) == 36


def test_shares_are_added_up_by_group() -> None:
    rows = [[0.1] * 10] * 20
    assert demo._group_shares(rows, "curriculum") == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert demo._group_shares([[0.0, 0.0, 0.0, 1.0]] * 9 + [[0.25] * 4], "noise") == [0.25] * 4


def test_the_summary_of_small_runs(tmp_path: Path) -> None:
    tiny = dataclasses.replace(Protocol.demo(), hidden=8, actor_hidden=8, batch_size=256, test_batches=1)
    runs = controlled.specs(["digits"], ["curriculum", "noise"], ["uniform", "curiosity", "gmc"], range(2), tiny, 2)
    store = RunStore(tmp_path)
    for spec in runs:
        with store.claim(spec) as run:
            controlled.run(run, Context())
    lines = demo.summarise(store, runs)
    assert [(line.condition, line.signal) for line in lines][:2] == [
        ("curriculum", "uniform"),
        ("curriculum", "curiosity"),
    ]
    assert all(line.ratio == 1 for line in lines if line.signal == "uniform")
    assert all(sum(line.shares) == pytest.approx(1) for line in lines)
    text = table(lines)
    assert text.count("\n") == 7
    assert "gmc" in text
    assert "times the loss area" in demo.conclusion(lines)
