from __future__ import annotations

import builtins
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.analysis import Results, ResultsReader, load_results, write_export
from headway.analysis import results as module
from headway.errors import StoreError
from headway.runs import RunStore, State
from tests.analysis.stores import (
    controlled_rows,
    controlled_spec,
    controlled_specs,
    damage,
    doorkey_rows,
    doorkey_spec,
    finish,
    finish_all,
    start,
    stop,
    write_mixed_store,
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Results:
    root = tmp_path_factory.mktemp("mixed")
    write_mixed_store(root, epochs=4, seeds=2)
    return load_results(root)


def test_every_readable_run_is_there_with_its_state(mixed: Results) -> None:
    assert mixed.counts() == {
        State.PENDING: 1,
        State.DONE: 2 * 6 * 2 + 2 * 4 * 2,
        State.FAILED: 1,
        State.INTERRUPTED: 1,
        State.CORRUPT: 2,
    }


def test_bad_runs_are_named_and_hide_no_other(mixed: Results) -> None:
    messages = {problem.label: problem.message for problem in mixed.problems}
    assert len(mixed.problems) == 3
    assert "it was damaged since" in messages["Noise+MNIST, GMC, seed 102"]
    assert "newer headway" in messages["Noise+MNIST, GMC, seed 105"]
    assert "expected a JSON object" in messages[""]
    (broken,) = mixed.select(seed=102)
    assert not broken.columns
    assert not broken.finished


def test_a_failed_run_has_its_error_and_what_it_logged(mixed: Results) -> None:
    (run,) = mixed.select(state=State.FAILED)
    assert run.error is not None
    assert run.error.message == "RuntimeError: loss is not finite <b>&"
    assert run.error.traceback.startswith("Traceback")
    assert run.rows == 2
    assert (run.progress.done, run.progress.total) == (2, 4)
    assert run.progress.seconds_left == 1.0


def test_a_stopped_run_has_what_it_logged(mixed: Results) -> None:
    (run,) = mixed.select(state=State.INTERRUPTED)
    assert run.columns["test_loss"].shape == (2, 4)
    assert run.note == "stopped on request"
    assert run.error is None


def test_the_numbers_are_those_that_were_logged(mixed: Results) -> None:
    (run,) = mixed.select(condition="curriculum", method="curiosity", seed=1)
    rows = controlled_rows(run.spec)
    for name in rows[0]:
        np.testing.assert_array_equal(run.columns[name], [row[name] for row in rows])
    assert run.columns["train_count"].shape == (4, 10)
    assert run.environment["torch"] == "2.13.0"


def test_selecting(mixed: Results) -> None:
    chosen = mixed.select(experiment="controlled", condition="noise", method=("gmc", "uniform"), seed=range(2))
    assert [(run.method, run.seed) for run in chosen] == [("uniform", 0), ("uniform", 1), ("gmc", 0), ("gmc", 1)]
    assert len(mixed.select(dataset="mnist", protocol="paper")) == 0
    assert {run.dataset for run in mixed.select(experiment="doorkey")} == {None}


def test_groups_and_methods(mixed: Results) -> None:
    groups = mixed.finished().groups()
    assert [group.title for group in groups] == [
        "Curriculum+MNIST",
        "Noise+MNIST",
        "MiniGrid DoorKey, No noise",
        "MiniGrid DoorKey, Door noise",
    ]
    first, *_, last = groups.values()
    assert list(first.methods()) == ["uniform", "curiosity", "gmc", "norm_last", "norm_all", "delta_loss"]
    assert list(last.methods()) == ["ppo", "icm", "gmc", "icm+gmc"]
    assert [run.seed for run in last.methods()["ppo"]] == [0, 1]


def test_groups_are_never_pooled(mixed: Results) -> None:
    with pytest.raises(ValueError, match=r"got Curriculum\+MNIST"):
        mixed.methods()


def test_other_lengths_and_protocols_are_other_groups(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for spec in (
        controlled_spec(epochs=3),
        controlled_spec(epochs=4),
        controlled_spec(epochs=3, protocol="paper"),
        controlled_spec(epochs=3, beta=0.9),
        controlled_spec(epochs=3, dataset="cifar10"),
    ):
        finish(store, spec)
    assert len(load_results(tmp_path).groups()) == 5


def test_a_running_run(tmp_path: Path) -> None:
    run = start(RunStore(tmp_path), controlled_spec(epochs=4))
    (loaded,) = load_results(tmp_path)
    assert loaded.state is State.RUNNING
    assert loaded.rows == 2
    run.interrupt()


def test_reading_again_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    finish_all(store, controlled_specs(seeds=1, epochs=4))
    half = controlled_spec(seed=1, epochs=4)
    stop(store, half)
    reader = ResultsReader(tmp_path)
    before = reader.read()
    reads: list[str] = []
    monkeypatch.setattr(module, "read_parquet", _counting(module.read_parquet, reads))
    assert [run.columns for run in reader.read()] == [run.columns for run in before]
    assert reads == []
    finish(store, half)
    finish(store, controlled_spec(seed=2, epochs=4))
    after = {run.seed: run.rows for run in reader.read().select(condition="noise", method="gmc")}
    assert after == {0: 4, 1: 4, 2: 4}
    assert len(reads) == 2


def test_damage_after_the_first_reading_is_noticed(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, controlled_spec(epochs=2))
    reader = ResultsReader(tmp_path)
    assert not reader.read().problems
    damage(store, controlled_spec(epochs=2))
    assert len(reader.read().problems) == 1


def test_only_some_columns(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, controlled_spec(epochs=2))
    stop(store, controlled_spec(epochs=4, seed=1))
    for run in load_results(tmp_path, columns=["test_loss"]):
        assert list(run.columns) == ["test_loss"]


def test_a_folder_of_stores_and_exports(tmp_path: Path) -> None:
    finish(RunStore(tmp_path / "a"), controlled_spec(epochs=2))
    finish(RunStore(tmp_path / "b"), controlled_spec(epochs=2, seed=1))
    stop(RunStore(tmp_path / "b"), controlled_spec(epochs=2))  # finished in the other one
    write_mixed_store(tmp_path / "c", epochs=2, seeds=1)
    write_export(load_results(tmp_path / "c"), tmp_path / "more.parquet")
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "store.json").write_text('{"schema": 99}')
    results = load_results(tmp_path)
    assert len(results.select(condition="noise", method="gmc").finished()) == 2
    assert any(problem.id == "newer" for problem in results.problems)
    assert len({run.id for run in results}) == len(results)


@pytest.mark.parametrize("names", [("all", "some"), ("some", "all")])
def test_of_the_same_run_in_two_places_the_one_with_more_metrics_counts(tmp_path: Path, names: tuple[str, str]) -> None:
    finish(RunStore(tmp_path / "store"), controlled_spec(epochs=4))
    runs = load_results(tmp_path / "store")
    exports = tmp_path / "exports"
    for place, name in enumerate(names):
        write_export(
            runs, exports / f"{place}.parquet", columns=None if name == "all" else ["test_loss"], single=name == "some"
        )
    results = load_results(exports)
    assert results.problems == ()  # rounded to single precision, the numbers are the same
    assert [run.columns.keys() for run in results] == [runs.runs[0].columns.keys()]


def test_the_same_run_with_other_numbers_elsewhere_is_told(tmp_path: Path) -> None:
    spec = controlled_spec(epochs=4)
    finish(RunStore(tmp_path / "new"), spec)
    others = [{**row, "test_loss": [2 * loss for loss in row["test_loss"]]} for row in controlled_rows(spec)]
    finish(RunStore(tmp_path / "old"), spec, others)
    results = load_results(tmp_path)
    assert len(results) == 1
    (problem,) = results.problems
    assert problem.id == spec.run_id
    assert "got others in old (test_loss); keep one of the two" in problem.message


def test_a_run_that_differs_only_in_epochs_that_do_not_count_is_left_out(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    settings = {"condition": "curriculum", "epochs_used": 3, "epochs_curriculum_mnist": 5}
    long = finish(store, controlled_spec(epochs=5, **settings))
    short = finish(store, controlled_spec(epochs=3, **settings))
    results = load_results(tmp_path)
    assert [run.id for run in results] == [long]
    assert [problem.id for problem in results.problems] == [short]


@pytest.mark.parametrize(("name", "got"), [("absent", "nothing"), ("empty", "a folder without any"), ("text", "file")])
def test_no_runs_at_all(tmp_path: Path, name: str, got: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("")
    with pytest.raises(StoreError, match=rf"expected a run store .*got .*{got}"):
        load_results(tmp_path / name)


def test_an_empty_store(tmp_path: Path) -> None:
    RunStore(tmp_path).add_all([])
    assert load_results(tmp_path) == Results()


def test_a_run_of_an_unknown_experiment(tmp_path: Path) -> None:
    spec = doorkey_spec(steps=4096)
    store = RunStore(tmp_path)
    other = type(spec)(experiment="novel", method="m", seed=0, params={"size": 3})
    finish(store, other, [{"loss": 1.0}, {"loss": 0.5}])
    (run,) = load_results(tmp_path)
    assert run.group.title == "novel"
    assert run.protocol == "unnamed, size=3"
    assert run.label == "novel, m, seed 0"


def test_nothing_imports_torch_or_a_plotting_library() -> None:
    code = (
        "import sys, headway.analysis, headway.analysis.claims, headway.analysis.comparison\n"
        "bad = {'torch', 'pandas', 'matplotlib', 'scipy', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _counting(function: Any, calls: list[str]) -> Any:
    def counted(data: bytes, what: str, *args: Any) -> Any:
        calls.append(what)
        return function(data, what, *args)

    return counted


def test_without_numpy_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_numpy(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "numpy":
            raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("headway.analysis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_numpy)
    with pytest.raises(ImportError, match=r"headway-torch\[report\]"):
        __import__("headway.analysis")


def test_a_finished_run_that_lacks_epochs_is_corrupt(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish(store, controlled_spec(seed=0, epochs=20))
    short = controlled_spec(seed=1, epochs=20)
    finish(store, short, controlled_rows(short)[:7])
    results = load_results(tmp_path)
    assert [(run.seed, run.state, run.rows) for run in results] == [(0, State.DONE, 20), (1, State.CORRUPT, 0)]
    (problem,) = results.problems
    assert problem.id == short.run_id
    assert problem.message == "expected the metrics of 20 epochs from a finished run, got 7; run it again"
    assert load_results(tmp_path, ["no such metric"]).problems == ()  # nothing was read that could be short


def test_a_finished_exploration_run_that_lacks_rollouts_is_corrupt(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    spec = doorkey_spec(steps=4 * 2048)
    finish(store, spec, doorkey_rows(spec)[:3])
    results = load_results(tmp_path)
    assert [run.state for run in results] == [State.CORRUPT]
    (problem,) = results.problems
    assert problem.message == "expected the metrics of 8192 steps from a finished run, got 6144; run it again"


def test_runs_with_former_choices_stand_in_until_the_presets_own_are_there(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    finish_all(store, controlled_specs(conditions=("noise",), methods=("gmc", "curiosity"), seeds=2, epochs=4))
    for seed in range(2):
        finish(store, controlled_spec(method="uniform", seed=seed, epochs=4, uniform="actor"))
    before = load_results(tmp_path)
    assert before.protocols() == ("released, epochs=4",)
    assert {(run.method, run.former) for run in before} == {
        ("uniform", ("uniform=actor",)),
        ("gmc", ()),
        ("curiosity", ()),
    }
    finish(store, controlled_spec(method="uniform", epochs=4))
    after = load_results(tmp_path)
    assert {run.protocol for run in after if run.former} == {"released, epochs=4, uniform=actor"}
    (own,) = after.select(protocol="released, epochs=4", method="uniform")
    assert own.former == ()
    assert not after.problems


def test_former_choices_of_exploration_stand_in_by_method(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for method, fields in (("ppo", {}), ("icm", {"icm_hidden_layer": True}), ("icm+gmc", {"icm_hidden_layer": False})):
        spec = doorkey_spec("none", method, steps=2048 * 40)
        finish(store, replace(spec, protocol={**spec.protocol, **fields}))
    found = load_results(tmp_path)
    assert len(found.protocols()) == 1
    assert {run.method: run.former for run in found} == {
        "ppo": (),
        "icm": ("icm_hidden_layer=true",),
        "icm+gmc": (),
    }
