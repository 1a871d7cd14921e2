"""The demo's table, by hand and on small runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from headway.analysis import load_results
from headway.analysis.tables import MethodRow, method_rows
from headway.commands.demo import compare, table
from headway.runs import RunStore
from headway.runs.context import Context
from headway.study import controlled, demo
from headway.study.protocols.controlled import Protocol


def _rows(folder: Path) -> list[MethodRow]:
    return [row for members in load_results(folder).groups().values() for row in method_rows(members)]


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
        with store.lock(spec) as run:
            controlled.run(run, Context())
    lines = demo.summarise(store, runs, compare)
    assert [(line.condition, line.signal) for line in lines][:2] == [
        ("curriculum", "uniform"),
        ("curriculum", "curiosity"),
    ]
    assert all(line.ratio == 1 for line in lines if line.signal == "uniform")
    assert all(sum(line.shares) == pytest.approx(1) for line in lines)
    rows = {(row.group.condition, row.method): row.relative for row in _rows(tmp_path)}
    for line in lines:
        found = rows[line.condition, line.signal]
        assert (line.ratio, line.low, line.high) == pytest.approx((found.value, found.low, found.high))
    text = table(lines)
    assert text.count("\n") == 8
    assert "gmc" in text
    heads = [number for number, words in enumerate(text.split("\n")) if words.endswith(("G3", "D"))]
    assert [text.split("\n")[number + 1].split()[0] for number in heads] == ["curriculum", "noise"]
    assert "times the loss area" in demo.conclusion(lines)
