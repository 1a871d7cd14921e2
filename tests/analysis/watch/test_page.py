from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.analysis import watch as module
from headway.analysis.watch import FULL_INTERVAL, INTERVAL, LivePage
from headway.runs import RunStore
from tests.analysis.stores import controlled_spec, controlled_specs, fail, finish, finish_all, start


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    found = RunStore(tmp_path / "runs")
    finish_all(found, controlled_specs(conditions=["noise"], methods=("uniform", "gmc"), seeds=2, epochs=4))
    return found


def test_it_looks_now_and_then(store: RunStore) -> None:
    clock = Clock()
    page = LivePage(store.root, clock)
    first = page.snapshot()
    fail(store, controlled_spec(seed=7, epochs=4))
    clock.now = INTERVAL - 0.1
    assert page.snapshot() is first
    clock.now = INTERVAL
    second = page.snapshot()
    assert second.version != first.version
    assert "1 run failed" in second.sections["overview"]


def test_nothing_new_is_the_same_version(store: RunStore) -> None:
    clock = Clock()
    page = LivePage(store.root, clock)
    first = page.snapshot()
    clock.now = 10 * FULL_INTERVAL
    second = page.snapshot()
    assert second is not first
    assert (second.version, second.figures_version) == (first.version, first.figures_version)


def test_figures_are_made_anew_more_rarely_than_counts(store: RunStore) -> None:
    clock = Clock()
    page = LivePage(store.root, clock)
    first = page.snapshot()
    finish(store, controlled_spec(seed=2, epochs=4))
    clock.now = INTERVAL
    second = page.snapshot()
    assert second.version != first.version
    assert second.figures_version == first.figures_version
    assert second.view.overview.over == 5
    clock.now = FULL_INTERVAL + 1
    third = page.snapshot()
    assert third.figures_version != first.figures_version


def test_claims_are_judged_again_only_for_other_finished_runs(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    monkeypatch.setattr(module, "claims_of", lambda results: judged.append(len(results.finished())) or {})
    clock = Clock()
    page = LivePage(store.root, clock)
    page.snapshot()
    run = start(store, controlled_spec(seed=2, epochs=4))
    clock.now += FULL_INTERVAL
    page.snapshot()
    assert judged == [4]
    run.interrupt("enough")
    finish(store, controlled_spec(seed=3, epochs=4))
    clock.now += FULL_INTERVAL
    page.snapshot()
    assert judged == [4, 5]


def test_runs_under_way_are_in_the_figures(store: RunStore) -> None:
    run = start(store, controlled_spec(seed=2, epochs=4))
    snapshot = LivePage(store.root).snapshot()
    name = next(name for name in snapshot.view.figures if name.startswith("loss-"))
    series = {each["key"]: each for each in snapshot.view.figures[name]["panels"][0]["series"]}
    assert series["gmc"]["n"] == 3
    assert "seed 2" in snapshot.sections["progress"]
    assert all("seed 2" not in row for row in snapshot.sections["tests"].splitlines())
    run.interrupt("enough")


def test_an_update_carries_the_figures_only_if_they_are_new(store: RunStore) -> None:
    snapshot = LivePage(store.root).snapshot()
    assert json.loads(snapshot.update(""))["figures"] == snapshot.view.figures
    assert json.loads(snapshot.update(snapshot.figures_version))["figures"] is None
