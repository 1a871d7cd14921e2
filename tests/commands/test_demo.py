"""The demo's table, by hand and on small runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from headway.analysis.report.findings import conclusion
from headway.commands.demo import demo_specs, rows_of, tables
from headway.runs import RunStore
from headway.runs.experiments import Context
from headway.study import controlled
from headway.study.protocols.classification import Protocol


def test_the_demo_has_36_different_runs() -> None:
    runs = demo_specs()
    assert len({spec.run_id for spec in runs}) == 36


def test_the_summary_of_small_runs(tmp_path: Path) -> None:
    tiny = dataclasses.replace(Protocol.demo(), hidden=8, actor_hidden=8, batch_size=256, test_batches=1)
    runs = controlled.specs(["digits"], ["curriculum", "noise"], ["uniform", "curiosity", "gmc"], range(2), tiny, 2)
    store = RunStore(tmp_path)
    for spec in runs:
        with store.lock(spec) as run:
            controlled.run(run, Context())
    rows = rows_of(tmp_path, {spec.run_id for spec in runs})
    assert [(row.group.condition, row.method) for row in rows][:2] == [
        ("curriculum", "uniform"),
        ("curriculum", "curiosity"),
    ]
    assert all(row.relative.value == 1 for row in rows if row.method == "uniform")
    assert all(sum(share.value for share in row.shares) == pytest.approx(1) for row in rows)
    noisy = [store.metrics(spec.run_id) for spec in runs if (spec.condition, spec.method) == ("noise", "gmc")]
    (gmc,) = [row for row in rows if (row.group.condition, row.method) == ("noise", "gmc")]
    assert gmc.auc.value == pytest.approx(sum(sum(columns["test_loss_mean"]) for columns in noisy) / 2)
    assert [share.value for share in gmc.shares] == pytest.approx(
        [sum(columns["draw_share"][-1][group] for columns in noisy) / 2 for group in range(4)]
    )
    assert not rows_of(tmp_path, set())
    curriculum, noise = tables(rows)
    assert (curriculum.columns[-1], noise.columns[-1]) == ("G3", "D")
    assert [row[0] for row in noise.rows] == ["uniform", "curiosity", "gmc"]
    assert noise.title.startswith("noise")
    noisy_rows = [row for row in rows if row.group.condition == "noise"]
    assert "Group D has the noisiest labels" in conclusion(noisy_rows)
    assert not conclusion(noisy_rows[:2])
