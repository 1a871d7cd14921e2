from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from headway.runs import RunSpec, RunStore
from headway.runs import provenance as module
from headway.runs.experiments import Context, Stopped, find_experiment
from headway.runs.provenance import code_fingerprint, continued, in_words, provenance
from headway.study import controlled, doorkey, resumable
from tests.study import test_controlled, test_doorkey

RUNS = [(controlled, test_controlled.one(epochs=3), 8), (doorkey, test_doorkey.one("ppo", rollouts=3), 45)]
"""Experiments, runs, and how often one asks whether to stop before it is in its second epoch or rollout."""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package on disk, to be edited, in place of the one that was imported."""
    copy = tmp_path / "headway"
    shutil.copytree(Path(module.__file__).parents[1], copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "__file__", str(copy / "experiments" / "provenance.py"))
    code_fingerprint.cache_clear()
    yield copy
    code_fingerprint.cache_clear()


def edit(code: Path) -> None:
    with (code / "meter.py").open("a") as file:
        file.write("# another line\n")


def edited(code: Path) -> str:
    """The fingerprint of another process, which imports the code after an edit."""
    edit(code)
    code_fingerprint.cache_clear()
    return code_fingerprint()


def facts(store: RunStore, spec: RunSpec) -> dict[str, str]:
    return json.loads(store.read_file(spec.run_id, "provenance.json"))


def stop(store: RunStore, experiment: ModuleType, spec: RunSpec, asked: int) -> None:
    left = iter(range(asked))
    with store.lock(spec) as run, pytest.raises(Stopped):
        experiment.run(run, Context(should_stop=lambda: next(left, None) is None))


def finish(store: RunStore, experiment: ModuleType, spec: RunSpec, context: Context | None = None) -> dict[str, str]:
    with store.lock(spec) as run:
        experiment.run(run, context or Context())
    return facts(store, spec)


def test_the_code_has_a_fingerprint_that_stays() -> None:
    first = code_fingerprint()
    code_fingerprint.cache_clear()
    assert code_fingerprint() == first
    assert re.fullmatch("[0-9a-f]{12}", first)


def test_versions_are_named() -> None:
    facts = provenance("torch")
    assert facts["torch"] == torch.__version__
    assert list(facts) == ["headway", "code", "python", "torch"]


@pytest.mark.parametrize(("experiment", "spec", "asked"), RUNS, ids=["controlled", "doorkey"])
def test_a_run_names_the_code_that_it_began_with_also_when_files_change_meanwhile(
    tmp_path: Path, code: Path, experiment: ModuleType, spec: RunSpec, asked: int
) -> None:
    before = finish(RunStore(tmp_path / "before"), experiment, spec)
    code_fingerprint.cache_clear()
    context = Context(report=lambda step, total, losses: edit(code))
    assert finish(RunStore(tmp_path / "meanwhile"), experiment, spec, context) == before
    assert edited(code) != before["code"]


def test_the_code_is_looked_at_when_an_experiment_is_imported(code: Path) -> None:
    find_experiment("controlled")
    first = code_fingerprint()
    edit(code)
    assert code_fingerprint() == first
    assert edited(code) != first


@pytest.mark.parametrize(("experiment", "spec", "asked"), RUNS, ids=["controlled", "doorkey"])
def test_a_run_that_other_code_resumes_names_both(
    tmp_path: Path, code: Path, experiment: ModuleType, spec: RunSpec, asked: int
) -> None:
    store = RunStore(tmp_path / "runs")
    first = code_fingerprint()
    stop(store, experiment, spec, asked)
    second = edited(code)
    stop(store, experiment, spec, 0)  # before it has done anything
    found = finish(store, experiment, spec)
    assert found["code"] == f"{first} then {second}"
    assert found["torch"] == torch.__version__
    assert found["device"] == "cpu"


@pytest.mark.parametrize(("experiment", "spec", "asked"), RUNS, ids=["controlled", "doorkey"])
def test_a_checkpoint_that_does_not_name_its_code_is_resumed_and_that_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    experiment: ModuleType,
    spec: RunSpec,
    asked: int,
) -> None:
    whole, store = RunStore(tmp_path / "whole"), RunStore(tmp_path / "parts")
    finish(whole, experiment, spec)
    write = resumable.state_writer
    with monkeypatch.context() as patch:  # as earlier versions wrote them
        patch.setattr(
            resumable, "state_writer", lambda state: write({k: v for k, v in state.items() if k != "provenance"})
        )
        stop(store, experiment, spec, asked)
    found = finish(store, experiment, spec)
    assert found["code"] == f"not recorded then {code_fingerprint()}"
    columns, expected = store.metrics(spec.run_id), whole.metrics(spec.run_id)
    assert all(repr(columns[name]) == repr(expected[name]) for name in expected if name != "steps_per_second")


def test_what_a_run_was_made_with_is_told_in_turn() -> None:
    old, new = {"code": "a", "torch": "2.12"}, {"code": "b", "torch": "2.12"}
    history = continued([], old)
    for facts in (old, new, new, old):
        history = continued(history, facts)
    assert history == [old, new, old]
    assert in_words(history) == {"code": "a then b then a", "torch": "2.12"}
    assert in_words(continued([{}], new)) == {"code": "not recorded then b", "torch": "not recorded then 2.12"}


def test_every_part_that_decides_numbers_is_there() -> None:
    root = Path(module.__file__).parents[1]
    assert [name for name in module.NUMBERS_COME_FROM if not (root / name).exists()] == []
