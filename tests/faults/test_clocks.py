"""Clocks that jump."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from headway.runs import RunStore, State, launchers
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.launchers import InProcess
from headway.runs.locks import Owner
from headway.runs.progress import Ended, Event, Outcome, Started
from tests.faults.campaigns import check_aftermath
from tests.runs.conftest import Recorder
from tests.runs.dummy import spec_of
from tests.runs.test_locks import LEASE, plant

pytestmark = pytest.mark.usefixtures("dummies")
DAY = 86400.0


@pytest.mark.parametrize("jump", [-DAY, DAY, -1e9], ids=["back", "ahead", "to long ago"])
def test_the_clock_jumps_during_a_campaign(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    specs, now, offset = [spec_of(seed=seed) for seed in range(4)], time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: now() + offset[0])

    def turn_clock(event: Event) -> None:
        if isinstance(event, Started):
            offset[0] += jump if offset[0] == 0 else 0.0

    recorder.react = turn_clock
    assert run_campaign(Campaign(specs, store), InProcess(), recorder).is_complete()
    assert store.lock(specs[0]) is None
    for spec in specs:
        status = store.record(spec.run_id).status
        assert status is not None
        assert 0 <= status.seconds < 3600  # measured with a clock that does not jump
    check_aftermath(store, specs)


def foreign(store: RunStore, lease: float = LEASE) -> os.PathLike[str]:
    """A lock of a process on another machine, whose life cannot be known."""
    owner = replace(Owner.this_process(lease), host="other", machine="other boot")
    return plant(store.root / store.add(spec_of()), owner)


def test_signs_of_life_with_a_clock_that_runs_backwards_count(store: RunStore) -> None:
    lock, seconds = foreign(store), [0.0]
    store._watch._clock = lambda: seconds[0]
    for beat in range(20):
        os.utime(lock, (now := time.time() - DAY * beat, now))
        assert not store.free(spec_of().run_id)
        seconds[0] += LEASE * 0.9
    assert not store.free(spec_of().run_id)
    seconds[0] += LEASE * 1.1  # now it is silent
    assert store.free(spec_of().run_id)


@pytest.mark.parametrize("age", [-DAY * 365, DAY * 365], ids=["from the future", "from long ago"])
def test_the_date_of_a_lock_says_nothing(store: RunStore, age: float) -> None:
    lock, seconds = foreign(store), [0.0]
    os.utime(lock, (time.time() - age, time.time() - age))
    store._watch._clock = lambda: seconds[0]
    assert not store.free(spec_of().run_id)
    seconds[0] += LEASE * 0.9
    assert not store.free(spec_of().run_id)
    seconds[0] += LEASE * 0.2
    assert store.free(spec_of().run_id)


def test_a_campaign_takes_over_from_a_machine_that_is_gone(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "ASK_AGAIN", 0.0)
    foreign(store, 0.05)
    specs = [spec_of(), spec_of(seed=1)]
    assert run_campaign(Campaign(specs, store), InProcess(), recorder).is_complete()
    assert Ended(specs[0].run_id, Outcome.HELD, here=False) in recorder.events
    assert store.record(specs[0].run_id).state is State.DONE
    check_aftermath(store, specs)
