"""The short form of the soak: real runs whose processes are killed, stopped, continued and asked to end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from headway.runs import RunStore
from headway.runs.launchers import InProcess
from tests.faults import soak
from tests.faults.strikes import workers_of
from tests.faults.watching import Watch

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")

SECONDS = 6.0


@pytest.mark.parametrize("part", [pytest.param("stalled_folder", marks=pytest.mark.soak), "stalled_url"])
def test_whatever_signals_do_all_runs_end_as_in_peace(tmp_path: Path, part: str) -> None:
    if part == "stalled_url":
        pytest.importorskip("s3fs")
        pytest.importorskip("moto")
    specs, peace = soak.tiny(3), RunStore(tmp_path / "peace")
    soak._conduct(peace, specs, InProcess(), Watch())
    outcome = soak.PARTS[part](tmp_path, peace, specs, SECONDS)
    assert outcome.kills > 0
    assert (outcome.done, outcome.identical) == (3, 3), outcome.messages


def test_the_length_of_runs_follows_the_time_of_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times = iter([0.0, 5.0, 5.0, 15.0])  # the first run imports torch; the second takes 10 s
    monkeypatch.setattr(soak, "_conduct", lambda *_: None)
    monkeypatch.setattr(soak.time, "monotonic", lambda: next(times))
    assert soak.epochs_that_take(30.0, tmp_path) == 3 * soak.TIMED_EPOCHS


def test_a_process_without_workers_has_none() -> None:
    assert workers_of(1) == []
