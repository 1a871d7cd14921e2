"""Plans and estimates."""

from __future__ import annotations

import pytest

from headway.runs import RunRecord, RunStore, State, campaign
from headway.runs import text as wording
from headway.runs.campaign import Campaign, Plan, make_plan
from tests.runs import dummy
from tests.runs.dummy import spec_of


def test_looking_up_runs_makes_no_store(store: RunStore) -> None:
    specs = [spec_of(seed=0), spec_of(seed=1)]
    assert Campaign(specs, store).look_up() == tuple(RunRecord(spec.run_id, State.PENDING, spec) for spec in specs)
    assert not store.root.exists()
    run = store.lock(specs[1])
    assert run is not None
    run.interrupt()
    assert [record.state for record in Campaign(specs, store).look_up()] == [State.PENDING, State.INTERRUPTED]
    assert not (store.root / specs[0].run_id).exists()


def test_runs_go_to_whoever_is_free() -> None:
    assert Plan((), {"a": 10.0, "b": 2.0, "c": 3.0, "d": 6.0}, 2).total_seconds() == 11.0
    assert Plan((), {"a": 10.0, "b": 2.0}, 0).total_seconds() == 12.0
    assert Plan((), {}, 2).total_seconds() == 0.0


@pytest.mark.usefixtures("dummies")
def test_an_estimate_leaves_out_what_is_done(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [spec_of(seed=seed, steps=4) for seed in range(4)]
    done, failed, half = (store.lock(spec) for spec in specs[:3])
    assert done
    assert failed
    assert half
    done.restore()
    done.finish()
    failed.fail(ValueError("no"))
    half.progress(2, 4)
    half.interrupt()
    asked = []
    estimate = dummy.estimate
    monkeypatch.setattr(dummy, "estimate", lambda spec, context: asked.append(spec) or estimate(spec, context))
    plan = make_plan(Campaign(specs, store), 2)
    assert plan.seconds == {specs[2].run_id: 20.0, specs[3].run_id: 40.0}
    assert len(asked) == 1  # seeds take the same time
    retrying = Campaign(specs, store, retry_failed=True)
    assert make_plan(retrying, 2).seconds.keys() == {spec.run_id for spec in specs[1:]}
    assert make_plan(retrying, 2, with_estimate=False).seconds == {}


@pytest.mark.usefixtures("dummies")
def test_an_estimate_does_not_try_hundreds_of_kinds_of_runs(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [spec_of(steps=steps) for steps in range(1, 201)]
    monkeypatch.setattr(campaign, "PATIENCE", 0.0)
    plan = make_plan(Campaign(specs, store), 2)
    seconds = plan.seconds
    assert plan.kinds == (200, 1)
    assert seconds.keys() == {spec.run_id for spec in specs}
    assert len(set(seconds.values())) == 1  # one was tried, and stands for all


def test_words() -> None:
    assert wording.values_text({"test": 0.25, "return": 0.875}) == "test loss 0.25, return 0.875"
    assert wording.last_line("Traceback:\n  x\nValueError: no\n") == "ValueError: no"
    assert wording.last_line("") == ""
    assert len(wording.shorten("x" * 999)) == 300
