from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.analysis.comparison import settings_of
from headway.analysis.report.overview import overview_of
from headway.analysis.results import load_results
from headway.runs import RunStore, State
from tests.analysis.made import controlled, together
from tests.analysis.stores import controlled_spec, finish, write_mixed_store

LOSSES = [[1.0] * 4] * 3


def test_a_store_with_some_of_everything(tmp_path: Path) -> None:
    write_mixed_store(tmp_path, epochs=4, seeds=2)
    results = load_results(tmp_path)
    found = overview_of(results, settings_of(results))
    tiles = {tile.label: tile for tile in found.tiles}
    assert {label: int(tile.number) for label, tile in tiles.items()} == {
        "runs": 46,
        "done": 40,
        "not started": 1,
        "interrupted": 1,
        "failed": 1,
        "corrupt": 3,
    }
    assert [label for label, tile in tiles.items() if tile.is_bad] == ["failed", "corrupt"]
    assert [run.seed for run in found.failures] == [100]
    assert found.failures[0].error.message == "RuntimeError: loss is not finite <b>&"
    assert [run.seed for run in found.unfinished] == [101]
    assert len(found.problems) == 3
    assert not found.is_whole
    controlled_, exploring = found.matrices
    assert (controlled_.experiment, exploring.experiment) == ("Controlled", "MiniGrid DoorKey")
    setting, seeds, covers = controlled_.rows[1]
    assert (setting.title, seeds) == ("Noise+MNIST", "0–1, 100–103, 105")
    cover = covers[controlled_.methods.index("GMC")]
    assert (cover.done, cover.total, cover.is_bad) == (2, 7, True)
    assert cover.rest == "not started: seed 103; interrupted: seed 101; failed: seed 100; corrupt: seeds 102, 105"
    other = covers[controlled_.methods.index("Uniform")]
    assert other.rest == "not in the store: seeds 100–103, 105"
    assert not other.is_bad
    assert all(cover and not cover.rest for cover in exploring.rows[0][2])


def test_what_comparisons_will_miss() -> None:
    runs = [controlled(LOSSES, method="uniform", seed=seed) for seed in range(4)]
    runs += [controlled(LOSSES, method="gmc", seed=seed) for seed in (0, 3)]
    results = together(*runs)
    found = overview_of(results, settings_of(results))
    (gap,) = found.gaps
    assert gap == "Noise+MNIST (released, epochs=3): GMC lacks seeds 1–2."
    assert not found.is_whole


def test_everything_is_there() -> None:
    results = together(*[controlled(LOSSES, method=method) for method in ("uniform", "gmc")])
    found = overview_of(results, settings_of(results))
    assert found.is_whole
    assert found.total == 2


def test_a_run_that_says_the_same_as_another_is_not_called_corrupt(tmp_path: Path) -> None:
    """Of Curriculum+MNIST 400 epochs count, so that a run of 400 and one of 500 are the same."""
    store = RunStore(tmp_path)
    for epochs in (400, 500):
        finish(store, controlled_spec(condition="curriculum", epochs=epochs))
    results = load_results(tmp_path)
    found = overview_of(results, settings_of(results))
    assert len(found.doubles) == 1
    assert found.problems == []
    assert [tile.label for tile in found.tiles] == ["run", "done"]


def test_no_runs_at_all() -> None:
    found = overview_of(together(), [])
    assert found.total == 0
    assert found.matrices == []


@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING, State.INTERRUPTED, State.FAILED])
def test_all_is_there_only_when_all_is_done(state: State) -> None:
    runs = [controlled(LOSSES, method=method) for method in ("uniform", "gmc")]
    rest = [replace(controlled(LOSSES, method=method, seed=1), state=state) for method in ("uniform", "gmc")]
    assert overview_of(together(*runs), settings_of(together(*runs))).is_whole
    both = together(*runs, *rest)
    assert not overview_of(both, settings_of(both)).is_whole
