"""Campaigns in this process: what is run, what is skipped, what failures do."""

from __future__ import annotations

import signal

import pytest

from headway.errors import ExperimentError, StoreError
from headway.runs import RunSpec, RunStore, State, launchers
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.experiments import find_experiment, register_experiment
from headway.runs.launchers import InProcess, StopRequest, stop_on_signals
from headway.runs.progress import Advanced, Ended, Event, Lost, Outcome, Started
from tests.runs.conftest import Recorder
from tests.runs.dummy import spec_of

pytestmark = pytest.mark.usefixtures("dummies")


def states(store: RunStore, specs: list[RunSpec]) -> list[State]:
    return [store.record(spec.run_id).state for spec in specs]


def test_runs_are_carried_out_and_told(store: RunStore, recorder: Recorder) -> None:
    spec = spec_of(steps=1)
    progress = run_campaign(Campaign([spec], store), InProcess(), recorder)
    assert [type(event) for event in recorder.events] == [Started, Advanced, Ended]
    assert recorder.events[-1] == Ended(spec.run_id, Outcome.DONE)
    assert progress.is_complete()
    assert store.metrics(spec.run_id)["step"] == [1]


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, ValueError])
def test_a_run_that_is_interrupted_while_it_is_told_is_given_back(
    store: RunStore, recorder: Recorder, trouble: type[BaseException]
) -> None:
    def disturb(event: Event) -> None:
        raise trouble

    recorder.react = disturb
    spec = spec_of()
    with pytest.raises(trouble):
        run_campaign(Campaign([spec], store), InProcess(), recorder)
    assert states(store, [spec]) == [State.INTERRUPTED]
    run_campaign(Campaign([spec], store), InProcess(), Recorder())
    assert states(store, [spec]) == [State.DONE]


def test_done_runs_are_skipped_and_repeated_ones_count_once(store: RunStore, recorder: Recorder) -> None:
    specs = [spec_of(seed=seed) for seed in (0, 1, 0)]
    run_campaign(Campaign(specs[:1], store), InProcess(), recorder)
    recorder.events.clear()
    progress = run_campaign(Campaign(specs, store), InProcess(), recorder)
    assert {event.run_id for event in recorder.events} == {specs[1].run_id}
    assert progress.count(Outcome.DONE) == 2
    assert progress.count(Outcome.DONE, here=True) == 1


def test_a_done_run_that_lost_its_metrics_is_run_again(store: RunStore, recorder: Recorder) -> None:
    spec = spec_of()
    run_campaign(Campaign([spec], store), InProcess(), recorder)
    (store.folder(spec.run_id) / "metrics.parquet").unlink()
    progress = run_campaign(Campaign([spec], store), InProcess(), recorder)
    assert progress.count(Outcome.DONE, here=True) == 1
    assert store.problems(spec.run_id) == []


def test_a_failure_is_recorded_and_the_others_go_on(store: RunStore, recorder: Recorder) -> None:
    specs = [spec_of("fail"), spec_of("unfinished"), spec_of()]
    progress = run_campaign(Campaign(specs, store), InProcess(), recorder)
    assert states(store, specs) == [State.FAILED, State.FAILED, State.DONE]
    assert [end.message for end in progress.failures()] == [
        "ValueError: two is too much",
        "ExperimentError: expected the experiment dummy to finish() its run, got a return",
    ]
    status = store.record(specs[0].run_id).status
    assert status is not None
    assert "Traceback" in status.error
    assert "suffer(run, context)" in status.error


def test_failed_runs_are_run_again_only_on_request(store: RunStore, recorder: Recorder) -> None:
    spec = spec_of("fail-first")
    run_campaign(Campaign([spec], store), InProcess(), recorder)
    recorder.events.clear()
    progress = run_campaign(Campaign([spec], store), InProcess(), recorder)
    assert recorder.events == []
    assert progress.failures() == [Ended(spec.run_id, Outcome.FAILED, "ValueError: two is too much", here=False)]
    progress = run_campaign(Campaign([spec], store, retry_failed=True), InProcess(), recorder)
    assert progress.failures() == []
    assert states(store, [spec]) == [State.DONE]
    assert store.metrics(spec.run_id)["step"] == [1, 2, 3]  # it went on from its checkpoint


def test_a_run_that_another_process_holds_is_waited_for(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "ASK_AGAIN", 0.0)
    specs = [spec_of(seed=0), spec_of(seed=1)]
    held = store.lock(specs[0])
    assert held is not None

    def let_go(event: Event) -> None:
        if event == Ended(specs[1].run_id, Outcome.DONE):
            held.interrupt()

    recorder.react = let_go
    progress = run_campaign(Campaign(specs, store), InProcess(), recorder)
    assert [event for event in recorder.events if isinstance(event, Ended)] == [
        Ended(specs[0].run_id, Outcome.HELD, here=False),
        Ended(specs[1].run_id, Outcome.DONE),
        Ended(specs[0].run_id, Outcome.DONE),
    ]
    assert progress.count(Outcome.HELD) == 0
    assert progress.is_complete()


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_run_that_ends_elsewhere_is_not_run_again(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, ends_well: bool
) -> None:
    monkeypatch.setattr(launchers, "ASK_AGAIN", 0.0)
    spec = spec_of()
    held = store.lock(spec)
    assert held is not None
    held.restore()

    def once(event: Event) -> None:
        recorder.react = lambda event: None
        held.finish() if ends_well else held.fail(ValueError("elsewhere"))

    recorder.react = once
    progress = run_campaign(Campaign([spec], store, retry_failed=True), InProcess(), recorder)
    assert not any(isinstance(event, Started) for event in recorder.events)
    assert progress.count(Outcome.DONE, here=False) == ends_well
    assert [end.message for end in progress.failures()] == ([] if ends_well else ["ValueError: elsewhere"])


def test_asked_to_stop_a_run_leaves_a_checkpoint_and_resumes(store: RunStore, recorder: Recorder) -> None:
    stop, specs = StopRequest(), [spec_of(seed=0, steps=9), spec_of(seed=1)]
    recorder.react = lambda event: stop.ask()
    progress = run_campaign(Campaign(specs, store), InProcess(), recorder, stop)
    assert recorder.events[-1] == Ended(specs[0].run_id, Outcome.INTERRUPTED)
    assert not progress.is_complete()
    assert states(store, specs) == [State.INTERRUPTED, State.PENDING]
    recorder.react = lambda event: None
    assert run_campaign(Campaign(specs, store), InProcess(), recorder).is_complete()
    assert store.metrics(specs[0].run_id)["step"] == list(range(1, 10))


def test_a_run_that_stops_unasked_is_started_again_once(store: RunStore, recorder: Recorder) -> None:
    specs = [spec_of("stop-first"), spec_of("stop"), spec_of()]
    progress = run_campaign(Campaign(specs, store), InProcess(), recorder)
    assert [event.run_id for event in recorder.events if isinstance(event, Lost)] == [
        specs[0].run_id,
        specs[1].run_id,
    ]
    assert states(store, specs) == [State.DONE, State.FAILED, State.DONE]
    (failure,) = progress.failures()
    assert failure.message == "WorkerLostError: the run stopped without a request, for the second time"


def test_a_full_disk_ends_the_campaign_and_the_run_resumes(store: RunStore, recorder: Recorder) -> None:
    specs = [spec_of("full"), spec_of()]
    with pytest.raises(StoreError, match="the disk is full; free some space"):
        run_campaign(Campaign(specs, store), InProcess(), recorder)
    assert states(store, specs) == [State.INTERRUPTED, State.PENDING]
    record = store.record(specs[0].run_id)
    assert record.status is not None
    assert "the disk is full" in record.status.note


def test_ctrl_c_asks_once_and_then_interrupts() -> None:
    stop, before = StopRequest(), signal.getsignal(signal.SIGINT)
    with stop_on_signals(stop):
        signal.raise_signal(signal.SIGTERM)
        assert stop.asked
        assert stop.wait(60)
        signal.raise_signal(signal.SIGTERM)  # never stops at once
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupted_run_in_this_process_is_recorded(store: RunStore, recorder: Recorder) -> None:
    spec = spec_of()

    def interrupt(event: Event) -> None:
        if isinstance(event, Advanced):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    recorder.react = interrupt
    with pytest.raises(KeyboardInterrupt):
        run_campaign(Campaign([spec], store), InProcess(), recorder)
    assert states(store, [spec]) == [State.INTERRUPTED]


def test_unknown_experiments_and_taken_names_are_errors() -> None:
    with pytest.raises(ExperimentError, match=r"expected an experiment among controlled, .*dummy.*, got 'nothing'"):
        find_experiment("nothing")
    with pytest.raises(ExperimentError, match="expected a new name for the experiment other"):
        register_experiment("dummy", "other")
