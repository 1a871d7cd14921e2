"""Run stores behind URLs in trouble: networks that fail, processes that come too late, objects that are gone."""

from __future__ import annotations

import errno
import getpass
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.errors import DamagedError, LockLostError, StoreError
from headway.runs import FileSum, RunStore, State, Status
from headway.runs import url_attempts as locks
from headway.runs.attempt import attempt, concerns_every_run
from headway.runs.bucket import DELAYS, Bucket
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.experiments import Context
from headway.runs.progress import Outcome
from headway.runs.url_attempts import Holder, Manifest, Part, Publisher
from tests.runs.dummy import spec_of
from tests.runs.helpers import checkpointed, failing, finish, lock
from tests.runs.helpers import spec_of as plain

pytestmark = pytest.mark.usefixtures("dummies")

RUN_ID = plain(0).run_id


@pytest.fixture
def memory() -> RunStore:
    return RunStore(f"memory://{secrets.token_hex(4)}/runs")


class Flaky:
    """Fails so many times, as a network does."""

    def __init__(self, act: Any, times: int, error: Exception) -> None:
        self.act, self.times, self.error = act, times, error

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return self.act(*arguments, **options)


ERRORS = [RuntimeError("connection reset"), OSError(errno.EIO, "connection reset")]
ACTS: dict[str, tuple[str, Callable[[Bucket, Path], object], object]] = {
    "put": ("pipe_file", lambda bucket, file: bucket.put("name", b"data"), None),
    "create": ("pipe_file", lambda bucket, file: bucket.create("new", b"data"), True),
    "get": ("cat_file", lambda bucket, file: bucket.get("name"), b"data"),
    "get_all": ("cat", lambda bucket, file: bucket.get_all(["name", "none"]), {"name": b"data"}),
    "get_file": ("get_file", lambda bucket, file: bucket.get_file("name", file), True),
    "names": ("find", lambda bucket, file: bucket.names(), {"name": 4}),
}


@pytest.fixture(params=list(ACTS))
def case(
    request: pytest.FixtureRequest, memory: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[float], Callable[[int, Exception], object], object]:
    """The waits, something done while a network fails so many times, and what it gives."""
    waits: list[float] = []
    bucket = Bucket(memory.place, waits.append)
    bucket.put("name", b"data")
    method, act, result = ACTS[request.param]

    def during(times: int, error: Exception) -> object:
        monkeypatch.setattr(bucket._fs, method, Flaky(getattr(bucket._fs, method), times, error))
        return act(bucket, tmp_path / "file")

    return waits, during, result


Case = tuple[list[float], Callable[[int, Exception], object], object]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_network_that_is_away_for_a_moment_is_waited_for(case: Case, error: Exception) -> None:
    waits, during, result = case
    assert during(2, error) == result
    assert waits == list(DELAYS[:2])


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_network_that_stays_away_is_no_fault_of_a_run(case: Case, error: Exception) -> None:
    waits, during, _ = case
    with pytest.raises(StoreError, match=r"cannot (read|write) memory://.*: .*connection reset") as caught:
        during(99, error)
    assert waits == list(DELAYS)
    assert concerns_every_run(caught.value)


def test_what_is_forbidden_is_said_at_once(case: Case) -> None:
    waits, during, _ = case
    with pytest.raises(StoreError, match="permission denied"):
        during(99, PermissionError(errno.EACCES, "Access Denied"))
    assert waits == []


def test_of_many_objects_only_those_that_failed_are_read_again(
    memory: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(memory.place, lambda seconds: None)
    bucket.put_all({name: name.encode() for name in "abc"})
    cat, asked = bucket._fs.cat, []

    def flaky(paths: list[str], on_error: str) -> dict[str, Any]:
        asked.append([path[-1] for path in paths])
        found: dict[str, Any] = cat(paths, on_error=on_error)
        return {
            path: OSError(errno.EIO, "slow down") if len(asked) == 1 and path[-1] == "b" else data
            for path, data in found.items()
        }

    monkeypatch.setattr(bucket._fs, "cat", flaky)
    assert bucket.get_all(["a", "b", "c"]) == {"a": b"a", "b": b"b", "c": b"c"}
    assert asked == [["a", "b", "c"], ["b"]]


def test_a_run_outlives_a_failed_read(memory: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.storage.bucket, "_sleep", lambda seconds: None)
    fs = memory.storage.bucket._fs
    spec = spec_of()
    verify = locks.UrlLock.verify

    def verify_late(self: locks.UrlLock) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(fs, "find", Flaky(fs.find, 1, RuntimeError("connection reset")))
            verify(self)

    monkeypatch.setattr(locks.UrlLock, "verify", verify_late)
    assert attempt(memory, spec, Context(), lambda event: None).outcome is Outcome.DONE


def test_a_lock_whose_reply_was_lost_is_ones_own(memory: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = memory.storage.bucket._fs
    write = fs.pipe_file

    def write_twice(path: str, data: bytes, mode: str = "overwrite") -> None:
        write(path, data, mode=mode)
        if mode == "create":  # the client has got no reply and tries again
            write(path, data, mode=mode)

    monkeypatch.setattr(fs, "pipe_file", write_twice)
    assert lock(memory, plain(0)).attempt == 1


def test_a_process_that_wakes_in_its_first_checkpoint_spoils_nothing(
    memory: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = lock(memory, plain(0))
    slow.restore()
    slow.log({"step": 1})
    successor = RunStore(memory.place)
    put, quick, begun = Bucket.put, [], []

    def put_late(self: Bucket, name: str, data: bytes) -> None:
        if "manifest" in name and not begun:
            begun.append(True)
            with monkeypatch.context() as patch:
                patch.setattr(locks, "is_over", lambda *_: True)  # the lease has ended
                quick.append(checkpointed(successor, plain(0), 1, 2))
        put(self, name, data)

    monkeypatch.setattr(Bucket, "put", put_late)
    slow.checkpoint(1, lambda file: file.write(b"from the past"))
    assert successor.metrics(RUN_ID)["step"] == [1, 2]
    quick[0].log({"step": 3})
    quick[0].checkpoint(3, lambda file: file.write(b"state 3"))
    assert successor.metrics(RUN_ID)["step"] == [1, 2, 3]
    assert successor.problems(RUN_ID) == []


def test_a_lost_lock_shows_no_more_signs_of_life(memory: RunStore) -> None:
    memory.add(plain(0))
    objects = memory.storage.bucket.folder(RUN_ID)
    holder = locks.try_lock(objects, memory._watch, 90.0)
    assert holder is not None
    objects.remove(["claim.1"])  # as if another process had taken the run over
    lost = locks.UrlLock(objects, holder, 0.06, memory.storage._work())
    lost._thread.join(timeout=60)
    assert not lost._thread.is_alive()
    with pytest.raises(LockLostError):
        lost.beat()
    lost.release()
    assert "claim.1" not in objects.names()


def test_a_run_goes_on_without_a_file_that_is_gone(memory: RunStore) -> None:
    run = lock(memory, plain(0))
    run.restore()
    run.save("best.pt", lambda file: file.write(b"weights"))
    run.log({"step": 1})
    run.checkpoint(1, lambda file: file.write(b"state 1"))
    run.interrupt()
    objects = Bucket(memory.place).folder(RUN_ID)
    objects.remove([name for name in objects.names() if "best.pt" in name])
    with lock(RunStore(memory.place), plain(0)) as run:
        assert run.restore() is not None
        run.log({"step": 2})
        run.checkpoint(2, lambda file: file.write(b"state 2"))
        run.finish()
    status = memory.record(RUN_ID).status
    assert status is not None
    assert list(status.files) == ["metrics.parquet"]
    assert status.note == "expected the objects of best.pt, got none: the run goes on without"
    assert memory.metrics(RUN_ID)["step"] == [1, 2]


@pytest.mark.parametrize("name", ["spec.json", "status.json", "claim.9", "checkpoint.2", "metrics.parquet", "best.pt"])
def test_a_manifest_names_only_files_that_a_run_writes(name: str) -> None:
    holder = Holder(1, "0" * 16)
    status = Status(RUN_ID, State.INTERRUPTED, 1, "host", 1, 0.0, 0.0)
    part = Part(**vars(FileSum.of(b"x")), object=holder.object_name(name, 1))
    manifest = Manifest(RUN_ID, **vars(holder), generation=1, status=status, files={name: part})
    if name in ("metrics.parquet", "best.pt"):
        assert Manifest.from_bytes(manifest.to_bytes(), RUN_ID, "it") == manifest
        return
    with pytest.raises(DamagedError, match=f"it: expected names of files that a run writes, got '{name}'"):
        Manifest.from_bytes(manifest.to_bytes(), RUN_ID, "it")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


posix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="users have no numbers here")


@posix
def test_a_user_without_a_name_has_working_copies(
    memory: RunStore, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nobody)
    finish(memory, plain(0))
    (folder,) = temporary.iterdir()
    assert folder.name.startswith(f"headway-{os.getuid()}-")
    assert folder.stat().st_mode & 0o077 == 0  # nobody else can put anything into it


@pytest.mark.parametrize("broken", ["tempfile.mkdtemp", "pathlib.Path.mkdir"])
def test_a_run_is_given_back_if_there_is_no_room_for_a_working_copy(
    memory: RunStore, temporary: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    memory.add(plain(0))
    if broken == "pathlib.Path.mkdir":
        memory.storage._work()  # there was room before
    with monkeypatch.context() as patch:
        patch.setattr(broken, failing(errno.ENOSPC))
        with pytest.raises(StoreError, match="the disk is full") as caught:
            memory.lock(plain(0))
    assert concerns_every_run(caught.value)
    assert memory.free(RUN_ID)


def taken_over(store: RunStore) -> tuple[Any, Any]:
    """A run that was stalled after it had looked at its lock, and the same run, taken over by another process."""
    first = checkpointed(store, plain(0), 1)
    first.log({"step": 2})
    first.save("final.pt", lambda file: file.write(b"weights"))
    first.checkpoint(2, lambda file: file.write(b"state"))
    first._lock.verify = lambda: None  # it has looked, and was stalled since
    first._lock._stop.set()
    lock_of = f"{RUN_ID}/claim.1"
    store.storage.bucket.put(
        lock_of, (store.storage.bucket.get(lock_of) or b"").replace(b'"released": false', b'"released": true')
    )
    second = lock(RunStore(store.place), plain(0))
    second.restore()
    first._lock._stop.clear()
    return first, second


def test_a_successor_removes_nothing_of_an_attempt_that_ends_meanwhile(
    memory: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = taken_over(memory)
    names, tidy, tidying = Bucket.names, Publisher._tidy, []

    def tidy_told(self: Publisher, *arguments: Any) -> None:
        tidying.append(self)
        tidy(self, *arguments)

    def names_then_end(self: Bucket, *arguments: Any) -> dict[str, int]:
        found = names(self, *arguments)
        if tidying:
            tidying.clear()
            monkeypatch.undo()
            first.finish()
        return found

    monkeypatch.setattr(Publisher, "_tidy", tidy_told)
    monkeypatch.setattr(Bucket, "names", names_then_end)
    second.log({"step": 3})
    second.checkpoint(3, lambda file: file.write(b"state"))
    record = RunStore(memory.place).record(RUN_ID)
    assert (record.state, record.status and record.status.attempt) == (State.DONE, 1)
    assert memory.problems(RUN_ID) == []
    second.interrupt()
    assert RunStore(memory.place).record(RUN_ID).state is State.DONE


def test_an_attempt_that_was_shut_out_cannot_end_its_run(memory: RunStore) -> None:
    first, second = taken_over(memory)
    second.log({"step": 3})
    second.checkpoint(3, lambda file: file.write(b"state"))
    with pytest.raises(LockLostError, match="got shut out by another process"):
        first.finish()
    record = RunStore(memory.place).record(RUN_ID)
    assert (record.state, record.status and record.status.attempt) == (State.RUNNING, 2)
    second.finish()
    assert RunStore(memory.place).metrics(RUN_ID)["step"] == [1, 2, 3]


def test_an_attempt_that_was_stalled_does_not_bring_back_a_run_that_was_reset(memory: RunStore) -> None:
    first, second = taken_over(memory)
    second.interrupt()
    memory.reset(RUN_ID)
    first.log({"step": 3})
    first.checkpoint(3, lambda file: file.write(b"state"))
    assert RunStore(memory.place).record(RUN_ID).state is State.PENDING
    assert RunStore(memory.place).metrics(RUN_ID) == {}


def test_what_a_kill_left_behind_a_done_run_is_removed_when_it_is_seen_again(memory: RunStore) -> None:
    checkpointed(memory, plain(0), 1).interrupt()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Publisher, "_tidy", lambda *_: None)  # as if it had been killed here
        finish_from_checkpoint(memory)
    left = [name for name in memory.storage.bucket.names() if "checkpoint" in name]
    assert len(left) == 1
    campaign = Campaign([plain(0)], RunStore(memory.place))
    assert run_campaign(campaign).is_complete()
    assert [name for name in memory.storage.bucket.names() if "checkpoint" in name] == []
    assert RunStore(memory.place).problems(RUN_ID) == []


def finish_from_checkpoint(store: RunStore) -> None:
    run = lock(store, plain(0))
    run.restore()
    run.finish()
