from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import LockLostError, StoreError
from headway.runs.folder_locks import LEASES_TO_LIST, is_held, look, newest, try_lock
from headway.runs.locks import DEFAULT_LEASE, MAX_LEASE, LeaseWatch, Owner
from tests.runs.helpers import failing, full_disk, names

LEASE = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> LeaseWatch:
    return LeaseWatch(LEASE, clock)


def plant(folder: Path, owner: Owner, number: int = 1) -> Path:
    path = folder / f"claim.{number}"
    path.write_text(json.dumps(owner.to_dict()))
    return path


def here() -> Owner:
    return Owner.this_process(LEASE)


def elsewhere() -> Owner:
    return replace(here(), host="other", machine="other boot")


def of_another_boot() -> Owner:
    """A process on a machine of the same name, in a boot that is not this one."""
    return replace(here(), machine="0b00d000-0000-4000-8000-000000000000 pid:[4026531836]")


def silent_for(path: Path, seconds: float) -> None:
    moment = path.stat().st_mtime - seconds
    os.utime(path, (moment, moment))


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch) -> float:
    """For how many seconds this machine has been up."""
    if not Path("/proc/sys/kernel/random/boot_id").exists():
        pytest.skip("this system does not name its boots")
    monkeypatch.setattr("headway.runs.folder_locks.uptime", lambda: 10 * LEASE)
    return 10 * LEASE


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_only_one_holds_a_run_and_it_can_be_given_back(tmp_path: Path, watch: LeaseWatch) -> None:
    assert not is_held(tmp_path)
    first = try_lock(tmp_path, watch, LEASE)
    assert first is not None
    assert is_held(tmp_path)
    assert try_lock(tmp_path, watch, LEASE) is None
    first.check()
    first.release()
    first.release()
    assert not is_held(tmp_path)
    second = try_lock(tmp_path, watch, LEASE)
    assert second is not None
    assert second.number == 2
    second.release()
    assert names(tmp_path) == ["claim.2"]


def test_a_lock_given_back_is_not_held_any_more(tmp_path: Path, watch: LeaseWatch) -> None:
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    lock.release()
    with pytest.raises(LockLostError):
        lock.check()


def test_a_dead_process_on_this_machine_loses_its_run_at_once(tmp_path: Path, watch: LeaseWatch) -> None:
    plant(tmp_path, replace(here(), pid=dead_pid()))
    assert not is_held(tmp_path)
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    lock.release()


def test_a_reused_process_id_does_not_pass_for_the_old_process(tmp_path: Path, watch: LeaseWatch) -> None:
    if not here().started:
        pytest.skip("this system does not tell when a process started")
    plant(tmp_path, replace(here(), started="1"))
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    lock.release()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_killed_process_that_nobody_has_collected_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(here(), pid=process.pid, started="")
    assert owner.is_alive() is True
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert owner.is_alive() is False
    process.communicate()
    assert owner.is_alive() is False


def test_a_live_process_on_this_machine_keeps_its_run_however_silent(
    tmp_path: Path, watch: LeaseWatch, clock: Clock
) -> None:
    plant(tmp_path, here())
    for _ in range(3):
        assert try_lock(tmp_path, watch, LEASE) is None
        clock.now += 100 * LEASE


def test_another_machine_keeps_its_run_until_it_was_silent_for_its_lease(
    tmp_path: Path, watch: LeaseWatch, clock: Clock
) -> None:
    path = plant(tmp_path, elsewhere())
    assert is_held(tmp_path)
    assert try_lock(tmp_path, watch, LEASE) is None
    clock.now += LEASE - 1
    os.utime(path)
    assert try_lock(tmp_path, watch, LEASE) is None  # a sign of life: the lease starts again
    clock.now += LEASE - 1
    assert try_lock(tmp_path, watch, LEASE) is None
    clock.now += 1
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    assert lock.number == 2
    lock.release()


def test_a_long_lease_shows_signs_of_life_as_often_as_others_look_for_them(tmp_path: Path, watch: LeaseWatch) -> None:
    lock = try_lock(tmp_path, watch, 10 * MAX_LEASE)
    assert lock is not None
    assert lock._interval < MAX_LEASE
    lock.release()


def test_after_a_restart_of_the_machine_its_runs_are_free_at_once(tmp_path: Path, watch: LeaseWatch, up: float) -> None:
    silent_for(plant(tmp_path, of_another_boot()), up + 2)
    assert not is_held(tmp_path)
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    lock.release()
    assert names(tmp_path) == ["claim.2"]


def test_a_machine_of_the_same_name_that_has_shown_a_sign_of_life_since_the_start_is_another_one(
    tmp_path: Path, watch: LeaseWatch, clock: Clock, up: float
) -> None:
    silent_for(plant(tmp_path, of_another_boot()), up / 2)
    assert is_held(tmp_path)
    assert try_lock(tmp_path, watch, LEASE) is None
    assert names(tmp_path) == ["claim.1"]
    clock.now += LEASE
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    lock.release()


def test_a_lock_that_was_taken_over_between_two_looks_is_looked_at_anew(
    tmp_path: Path, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = try_lock(tmp_path, watch, LEASE)
    assert before is not None
    before.release()
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    assert names(tmp_path) == ["claim.2"]
    stale = [before.number]
    monkeypatch.setattr("headway.runs.folder_locks.newest", lambda folder: stale.pop() if stale else newest(folder))
    assert is_held(tmp_path)
    assert not stale
    lock.release()


def test_right_after_its_start_a_machine_waits_for_the_lease_of_one_of_its_name(
    tmp_path: Path, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch, up: float
) -> None:
    monkeypatch.setattr("headway.runs.folder_locks.uptime", lambda: 1.0)
    silent_for(plant(tmp_path, of_another_boot()), LEASE / 2)
    assert is_held(tmp_path)
    assert try_lock(tmp_path, watch, LEASE) is None


def test_only_times_of_files_tell_that_a_machine_was_started_anew(
    tmp_path: Path, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch, up: float
) -> None:
    plant(tmp_path, of_another_boot())
    now = time.time() + 10**9
    monkeypatch.setattr(time, "time", lambda: now)
    assert try_lock(tmp_path, watch, LEASE) is None


def test_after_a_restart_a_contender_whose_file_the_new_holder_cleared_away_gives_way(
    tmp_path: Path, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch, up: float
) -> None:
    silent_for(plant(tmp_path, of_another_boot()), up + 2)
    monkeypatch.setattr(os, "utime", failing(errno.ENOENT))
    assert try_lock(tmp_path, watch, LEASE) is None
    monkeypatch.setattr(os, "utime", full_disk)
    with pytest.raises(StoreError, match="the disk is full"):
        try_lock(tmp_path, watch, LEASE)
    assert names(tmp_path) == ["claim.1"]


@pytest.mark.parametrize("machine", ["", "abroad", "0b00d000-0000-4000-8000-000000000000", "vm 525400123456"])
def test_a_machine_that_does_not_name_its_boot_is_watched(
    tmp_path: Path, watch: LeaseWatch, up: float, machine: str
) -> None:
    silent_for(plant(tmp_path, replace(here(), machine=machine)), up + 2)
    assert is_held(tmp_path)
    assert try_lock(tmp_path, watch, LEASE) is None


def test_another_space_of_process_ids_in_this_boot_is_watched(tmp_path: Path, watch: LeaseWatch, up: float) -> None:
    boot = here().machine.split()[0]
    silent_for(plant(tmp_path, replace(here(), machine=f"{boot} pid:[1]")), up + 2)
    assert is_held(tmp_path)
    assert try_lock(tmp_path, watch, LEASE) is None


@pytest.mark.parametrize("owner", [elsewhere(), replace(elsewhere(), lease=0.05), None])
def test_a_listing_takes_a_foreign_lock_for_over_when_its_time_is_long_past(
    tmp_path: Path, watch: LeaseWatch, owner: Owner | None
) -> None:
    path = tmp_path / "claim.1"
    path.write_text(json.dumps(owner.to_dict()) if owner else "")
    silent_for(path, LEASES_TO_LIST * DEFAULT_LEASE - 60)
    assert is_held(tmp_path)
    silent_for(path, 120)
    assert not is_held(tmp_path)
    assert try_lock(tmp_path, watch, LEASE) is None  # which is no reason to take it over
    silent_for(path, -(10**9))
    assert is_held(tmp_path)


def test_a_long_lease_makes_a_listing_patient(tmp_path: Path) -> None:
    path = plant(tmp_path, replace(elsewhere(), lease=10 * DEFAULT_LEASE))
    silent_for(path, 9 * LEASES_TO_LIST * DEFAULT_LEASE)
    assert is_held(tmp_path)
    silent_for(path, 2 * LEASES_TO_LIST * DEFAULT_LEASE)
    assert not is_held(tmp_path)


def test_a_wall_clock_that_jumps_back_or_ahead_does_no_harm(tmp_path: Path, watch: LeaseWatch, clock: Clock) -> None:
    path = plant(tmp_path, elsewhere())
    for jump in (0, 10**9, 1, 2 * 10**9, 5):
        os.utime(path, (jump, jump))
        assert try_lock(tmp_path, watch, LEASE) is None
        clock.now += LEASE - 1
    clock.now += 1
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    lock.release()


def test_the_holders_own_lease_counts(tmp_path: Path, clock: Clock) -> None:
    plant(tmp_path, replace(elsewhere(), lease=10.0))
    watch = LeaseWatch(1000.0, clock)
    assert try_lock(tmp_path, watch, LEASE) is None
    clock.now += 10
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    lock.release()


@pytest.mark.parametrize("content", ["", "{", '{"host": 1}', "[]", '{"pid": 1e999}'])
def test_an_unreadable_lock_is_waited_for(tmp_path: Path, watch: LeaseWatch, clock: Clock, content: str) -> None:
    (tmp_path / "claim.1").write_text(content)
    assert is_held(tmp_path)
    assert try_lock(tmp_path, watch, LEASE) is None
    clock.now += LEASE
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    lock.release()


def test_a_holder_that_was_replaced_notices(tmp_path: Path, watch: LeaseWatch) -> None:
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    plant(tmp_path, elsewhere(), 2)
    with pytest.raises(LockLostError, match="another one goes on with the run"):
        lock.check()
    lock.release()
    assert is_held(tmp_path)  # by the other one, as before


def test_a_beat_changes_the_lock_and_notices_its_loss(tmp_path: Path, watch: LeaseWatch) -> None:
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    path = tmp_path / "claim.1"
    os.utime(path, (0, 0))
    before = look(tmp_path, 1)
    lock.beat()
    after = look(tmp_path, 1)
    assert before is not None
    assert after is not None
    assert before.beat != after.beat
    path.unlink()
    lock.beat()
    with pytest.raises(LockLostError):
        lock.check()
    lock.release()


def test_the_thread_beats(tmp_path: Path) -> None:
    lock = try_lock(tmp_path, LeaseWatch(LEASE), lease=0.006)
    assert lock is not None
    (tmp_path / "claim.1").unlink()
    while not lock._lost:  # the next beat finds the lock gone
        lock._thread.join(0.001)
    lock.release()


def test_a_slow_contender_whose_number_has_come_and_gone_gives_way(
    tmp_path: Path, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, replace(here(), pid=dead_pid()), 7)
    seen = iter([5, 7])  # it listed the folder when claim.5 was the newest, and looks again afterwards
    plant(tmp_path, replace(here(), pid=dead_pid()), 5)
    monkeypatch.setattr("headway.runs.folder_locks.newest", lambda folder: next(seen))
    assert try_lock(tmp_path, watch, LEASE) is None
    assert not (tmp_path / "claim.6").exists()
    assert newest(tmp_path) == 7


def test_file_systems_without_hard_links_work_too(
    tmp_path: Path, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EOPNOTSUPP))
    lock = try_lock(tmp_path, watch, LEASE)
    assert lock is not None
    assert try_lock(tmp_path, watch, LEASE) is None
    seen_lock = look(tmp_path, 1)
    assert seen_lock is not None
    assert seen_lock.owner == here()
    lock.release()
    assert names(tmp_path) == ["claim.1"]


def test_a_full_disk_is_a_store_error_and_leaves_no_lock(
    tmp_path: Path, watch: LeaseWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", full_disk)
    with pytest.raises(StoreError, match="the disk is full"):
        try_lock(tmp_path, watch, LEASE)
    assert names(tmp_path) == []


def test_a_missing_folder_is_a_store_error(tmp_path: Path, watch: LeaseWatch) -> None:
    with pytest.raises(StoreError, match="cannot read"):
        try_lock(tmp_path / "none", watch, LEASE)


def test_only_locks_count(tmp_path: Path) -> None:
    for name in ("claim.0", "claim.01", "claim.x", "claim.1.tmp", "claim.\u0663", ".claim.9", "claim.3"):
        (tmp_path / name).write_text("")
    assert newest(tmp_path) == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_arbitrary_locks_never_raise(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "claim.1").write_bytes(data)
    assert is_held(tmp_path) is not data.startswith(b"released")


def test_owners_with_absurd_numbers_are_dead_or_refused() -> None:
    assert replace(here(), pid=2**40).is_alive() is False
    assert replace(here(), pid=-1).is_alive() is False
    with pytest.raises(StoreError, match="lease"):
        Owner.from_dict({**here().to_dict(), "lease": 1e10})
