from __future__ import annotations

from dataclasses import replace

import numpy as np

from headway.analysis.comparison import CONTROLLED, EXPLORATION, kind_of, settings_of
from headway.runs import State
from tests.analysis.made import controlled, exploration, made, together
from tests.analysis.stores import controlled_spec

LOSSES = np.ones((3, 4))


def test_runs_are_sorted_by_setting_and_method() -> None:
    runs = [controlled(LOSSES, method=method, seed=seed) for method in ("gmc", "uniform") for seed in (1, 0)]
    other = controlled(np.ones((3, 10)), condition="curriculum")
    first, second, third = settings_of(together(*runs, other, exploration([1.0, 2.0])))
    assert (first.title, second.title) == ("Curriculum+MNIST", "Noise+MNIST")
    assert list(second.all) == ["uniform", "gmc"]
    assert [run.seed for run in second.all["gmc"]] == [0, 1]
    assert (second.kind, third.kind) == (CONTROLLED, EXPLORATION)
    assert len({first.key, second.key, third.key}) == 3
    assert settings_of(together(*runs))[0].key == second.key, "it does not depend on what else there is"


def test_only_finished_runs_count_unless_the_page_is_live() -> None:
    runs = [replace(controlled(LOSSES, seed=seed), state=state) for seed, state in enumerate(State)]
    (setting,) = settings_of(together(*runs))
    assert {run.state for run in setting.shown["gmc"]} == {State.DONE}
    (setting,) = settings_of(together(*runs), with_unfinished=True)
    assert {run.state for run in setting.shown["gmc"]} == {State.DONE, State.RUNNING, State.INTERRUPTED}
    assert {run.state for run in setting.finished["gmc"]} == {State.DONE}
    assert len(setting.all["gmc"]) == len(State)


def test_metrics_of_another_kind_are_not_mistaken() -> None:
    spec = controlled_spec(epochs=2)
    ones = np.ones(2)
    assert kind_of(made(spec)) == ""
    assert kind_of(made(spec, test_loss=ones, test_count=ones, train_count=ones)) == "", "one number, not one per arm"
    wide = np.ones((2, 7))
    assert kind_of(made(spec, test_loss=wide, test_count=wide, train_count=wide)) == "", "seven arms are nobody's"
    assert kind_of(made(spec, loss=ones)) == ""
    assert kind_of(controlled(LOSSES)) == CONTROLLED


def test_a_run_without_the_metrics_of_the_others_is_left_out() -> None:
    odd = made(controlled_spec(epochs=3, seed=9), loss=np.ones(3))
    (setting,) = settings_of(together(controlled(LOSSES), odd))
    assert [run.seed for run in setting.finished["gmc"]] == [0]
    assert len(setting.all["gmc"]) == 2
