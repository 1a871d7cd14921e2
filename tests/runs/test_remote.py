"""Run stores behind URLs: in memory, in a folder, and on a server that speaks S3's language."""

from __future__ import annotations

import os
import pickle
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.errors import LockLostError, StoreError, UsageError
from headway.runs import RunStore, State
from headway.runs.bucket import Bucket
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.experiments import Context
from headway.runs.launchers import InProcess
from headway.runs.url_storage import fetch
from headway.study.controlled import specs as controlled_specs
from headway.study.protocols.classification import Protocol
from tests.runs.conftest import Recorder
from tests.runs.dummy import spec_of
from tests.runs.helpers import checkpointed, finish, lock
from tests.runs.helpers import spec_of as plain

pytestmark = pytest.mark.usefixtures("dummies")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A bucket on a server of this machine."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setitem(fsspec_config(), "s3", {"endpoint_url": f"http://{host}:{port}"})
        import boto3

        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        yield "s3://bucket"
    server.stop()


def fsspec_config() -> dict[str, Any]:
    from fsspec.config import conf

    found: dict[str, Any] = conf
    return found


@pytest.fixture(params=["memory", "folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{secrets.token_hex(4)}/runs"
    if request.param == "folder":
        return f"file://{tmp_path}/bucket/runs"
    return f"{request.getfixturevalue('s3')}/{secrets.token_hex(4)}"


@pytest.fixture
def remote(url: str) -> RunStore:
    return RunStore(url)


@pytest.fixture
def memory() -> RunStore:
    return RunStore(f"memory://{secrets.token_hex(4)}/runs")


def again(store: RunStore) -> RunStore:
    """The same store, as another process sees it."""
    return RunStore(store.place, store.lease)


def names(store: RunStore, run_id: str) -> list[str]:
    return sorted(Bucket(store.place).folder(run_id).names())


@pytest.mark.slow
def test_runs_are_kept_listed_and_read(remote: RunStore) -> None:
    assert not remote.exists()
    with pytest.raises(StoreError, match="expected a run store"):
        remote.status()
    specs = [plain(seed) for seed in range(4)]
    remote.add_all(specs)
    finish(remote, specs[0])
    checkpointed(remote, specs[1], 1, 2).interrupt("enough")
    checkpointed(remote, specs[2], 1).fail(ValueError("two is too much"))
    other = again(remote)
    records = other.status()
    assert [record.spec for record in records] == specs
    assert [record.state for record in records] == [State.DONE, State.INTERRUPTED, State.FAILED, State.PENDING]
    assert other.records([specs[2].run_id, specs[0].run_id]) == [records[2], records[0]]
    assert [other.metrics(spec.run_id).get("step") for spec in specs] == [[1, 2, 3], [1, 2], [1], None]
    assert [other.problems(spec.run_id) for spec in specs] == [[]] * 4
    assert other.lock(specs[0]) is None
    assert other.lock(specs[2], retry_failed=False) is None


def test_a_run_goes_on_from_its_checkpoint_in_another_process(remote: RunStore) -> None:
    run = checkpointed(remote, plain(0), 1, 2)
    assert again(remote).lock(plain(0)) is None  # it is under way
    assert again(remote).record(plain(0).run_id).state is State.RUNNING
    run.interrupt()
    with lock(again(remote), plain(0)) as run:
        checkpoint = run.restore()
        assert checkpoint is not None
        assert checkpoint.payload == b"state 2"
        assert run.attempt == 2
        run.log({"step": 3})
        run.save("final.pt", lambda file: file.write(b"weights"))
        run.finish()
    assert again(remote).metrics(plain(0).run_id)["step"] == [1, 2, 3]
    assert again(remote).read_file(plain(0).run_id, "final.pt") == b"weights"
    kept = names(remote, plain(0).run_id)
    assert [name.partition("@")[0].partition(".2-")[0] for name in kept] == [
        "claim.2",
        "end",
        "final.pt",
        "manifest",
        "metrics.parquet",
        "spec.json",
    ]


def test_a_checkpoint_of_the_same_size_and_time_as_the_one_before_is_written(
    memory: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def replace_in_the_same_tick(path: Path, target: Path) -> Path:
        os.utime(path, (0, 0))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replace_in_the_same_tick)
    run = lock(memory, plain(0))
    run.restore()
    for step in range(1, 5):  # two for each of the slots
        run.checkpoint(step, lambda file, step=step: file.write(b"state %d" % step))
    run.interrupt()
    with lock(again(memory), plain(0)) as run:
        checkpoint = run.restore()
        assert checkpoint is not None
        assert checkpoint.payload == b"state 4"
        run.interrupt()


def test_only_one_of_two_gets_a_run(remote: RunStore) -> None:
    remote.add(plain(0))
    first, second = Bucket(remote.place), Bucket(remote.place)
    name = f"{plain(0).run_id}/claim.1"
    assert [first.create(name, b"first"), second.create(name, b"second")] == [True, False]
    assert first.get(name) == b"first"


def test_the_numbers_are_those_of_a_folder(remote: RunStore, tmp_path: Path, recorder: Recorder) -> None:
    protocol = Protocol.demo().override({"hidden": "8", "batch_size": "256", "test_batches": "1"})
    specs = controlled_specs(["digits"], ["noise"], ["gmc"], [0], protocol, 2)
    context = Context(keep_weights=True, checkpoint_seconds=0.0)
    local = RunStore(tmp_path / "here")
    for store in (remote, local):
        assert run_campaign(Campaign(specs, store, context), InProcess(), recorder).failures() == []
    for name in ("metrics.parquet", "final.pt", "provenance.json"):
        assert remote.read_file(specs[0].run_id, name) == local.read_file(specs[0].run_id, name)


@pytest.mark.slow
def test_a_store_is_fetched_once(remote: RunStore, tmp_path: Path) -> None:
    finish(remote, plain(0))
    checkpointed(remote, plain(1), 1).interrupt()
    remote.add(plain(2))
    local = RunStore(tmp_path / "copy")
    assert fetch(remote, local) == 2
    assert fetch(remote, local) == 0
    assert [record.state for record in local.status()] == [State.DONE, State.INTERRUPTED, State.PENDING]
    assert [local.metrics(plain(seed).run_id).get("step") for seed in range(3)] == [[1, 2, 3], [1], None]
    assert local.problems(plain(0).run_id) == []
    finish(remote, plain(2))
    assert fetch(remote, local) == 1
    assert not list((tmp_path / "copy").glob(".new*"))


def test_a_campaign_fails_and_resumes_as_in_a_folder(memory: RunStore, recorder: Recorder) -> None:
    specs = [spec_of("fail-first"), spec_of("stop-first"), spec_of()]
    progress = run_campaign(Campaign(specs, memory), InProcess(), recorder)
    assert [end.message for end in progress.failures()] == ["ValueError: two is too much"]
    assert run_campaign(Campaign(specs, memory, retry_failed=True), InProcess(), recorder).failures() == []
    assert [memory.metrics(spec.run_id)["step"] for spec in specs] == [[1, 2, 3]] * 3
    status = memory.record(specs[0].run_id).status
    assert status is not None
    assert status.attempt == 2


def test_a_manifest_that_was_cut_short_leaves_the_one_before(memory: RunStore) -> None:
    run = checkpointed(memory, plain(0), 1)
    bucket = Bucket(memory.place)
    run.log({"step": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.runs.url_attempts.Manifest.to_bytes", lambda self: b"cut sh")
        patch.setattr("headway.runs.url_attempts.Publisher._tidy", lambda *_: None)  # killed before that
        run.checkpoint(2, lambda file: file.write(b"state 2"))
    assert b"cut sh" in [bucket.get(name) for name in bucket.names()]
    assert memory.metrics(plain(0).run_id)["step"] == [1]
    run.interrupt()
    assert memory.metrics(plain(0).run_id)["step"] == [1, 2]


def test_a_process_that_lost_its_lock_spoils_nothing(memory: RunStore) -> None:
    slow = checkpointed(memory, plain(0), 1)
    Bucket(memory.place).remove([f"{plain(0).run_id}/claim.1"])  # as if its lease had ended
    quick = lock(again(memory), plain(0))
    with pytest.raises(LockLostError, match="goes on with the run; nothing of it is lost"):
        slow.checkpoint(2, lambda file: file.write(b"from the past"))
    # It may even have looked before the other one came: its manifest and its objects have names of their own.
    slow._lock.verify = lambda: None  # type: ignore[attr-defined,method-assign]
    slow._lock._lost = False  # type: ignore[attr-defined]
    slow.log({"step": 9})
    slow.checkpoint(9, lambda file: file.write(b"from the past"))
    checkpoint = quick.restore()
    assert checkpoint is not None
    assert checkpoint.payload == b"state 1"
    quick.finish()
    slow._step = 9
    slow.checkpoint(10, lambda file: file.write(b"from the past"))
    assert again(memory).record(plain(0).run_id).state is State.DONE
    assert again(memory).metrics(plain(0).run_id)["step"] == [1]


def test_a_foreign_lock_is_taken_over_after_its_lease(memory: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    with monkeypatch.context() as patch:
        patch.setattr("headway.runs.locks._this_machine", lambda: "another machine")
        checkpointed(memory, plain(0), 1)  # its thread beats every 15 s, which is long after this test
    other = again(memory)
    other._watch._clock = lambda: now[0]
    assert not other.free(plain(0).run_id)
    now[0] += memory.lease - 1
    assert not other.free(plain(0).run_id)
    now[0] += 2
    assert other.free(plain(0).run_id)
    run = again(memory).lock(plain(0))
    assert run is not None
    assert run.attempt == 3
    run.interrupt()


def test_a_run_of_a_machine_that_is_gone_is_reset_after_its_lease(
    memory: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    with monkeypatch.context() as patch:
        patch.setattr("headway.runs.locks._this_machine", lambda: "another machine")
        checkpointed(memory, plain(0), 1)  # its thread beats every 15 s, which is long after this test
    other = again(memory)
    other._watch._clock = lambda: now[0]
    with monkeypatch.context() as patch:
        patch.setattr("headway.runs.locks.time.sleep", wait)
        other.reset(plain(0).run_id)
    assert now[0] >= memory.lease
    assert other.record(plain(0).run_id).state is State.PENDING


def test_a_sign_of_life_keeps_a_lock(memory: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    with monkeypatch.context() as patch:
        patch.setattr("headway.runs.locks._this_machine", lambda: "another machine")
        run = checkpointed(memory, plain(0), 1)
        other = again(memory)
        other._watch._clock = lambda: now[0]
        assert not other.free(plain(0).run_id)
        now[0] += memory.lease
        run._lock.beat()  # type: ignore[attr-defined]
    assert not other.free(plain(0).run_id)
    run.interrupt()
    assert other.free(plain(0).run_id)


def test_damage_is_noticed_and_the_run_done_again(memory: RunStore) -> None:
    finish(memory, plain(0))
    bucket, run_id = Bucket(memory.place), plain(0).run_id
    (metrics,) = (name for name in bucket.names() if "metrics" in name)
    whole = bucket.get(metrics)
    assert whole is not None
    bucket.put(metrics, bytes(len(whole)))
    with pytest.raises(StoreError, match=r"expected the \d+ bytes that the run wrote, got \d+ other bytes"):
        memory.metrics(run_id)
    assert len(memory.problems(run_id)) == 1
    bucket.remove([metrics])
    record = memory.record(run_id)
    assert record.state is State.CORRUPT
    assert "expected the objects of its manifest" in record.reason
    finish(memory, plain(0))
    assert memory.problems(run_id) == []
    memory.reset(run_id)
    assert memory.record(run_id).state is State.PENDING
    assert names(memory, run_id) == ["claim.3", "reset.3", "spec.json"]


def test_damage_of_a_saved_file_is_noticed(memory: RunStore) -> None:
    with lock(memory, plain(0)) as run:
        run.restore()
        run.log({"step": 1})
        run.save("final.pt", lambda file: file.write(b"weights"))
        run.finish()
    bucket, run_id = Bucket(memory.place), plain(0).run_id
    assert memory.problems(run_id) == []
    (saved,) = (name for name in bucket.names() if "final.pt" in name)
    bucket.put(saved, b"WEIGHTS")
    (problem,) = memory.problems(run_id)
    assert "final.pt: expected the 7 bytes that the run wrote" in problem


def test_a_damaged_checkpoint_falls_back_to_the_one_before(memory: RunStore) -> None:
    checkpointed(memory, plain(0), 1, 2).interrupt()
    bucket = Bucket(memory.place)
    (newest,) = (name for name in bucket.names() if "checkpoint.1" in name)
    data = bytearray(bucket.get(newest) or b"")
    data[30] ^= 1
    bucket.put(newest, bytes(data))
    with lock(again(memory), plain(0)) as run:
        checkpoint = run.restore()
        assert checkpoint is not None
        assert checkpoint.payload == b"state 1"
        run.finish()
    status = memory.record(plain(0).run_id).status
    assert status is not None
    assert "damaged; resumed from step 1" in status.note


def test_what_cannot_be_published_does_not_count_as_done(
    memory: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.runs.bucket.DELAYS", ())
    publish = "headway.runs.url_attempts.Publisher.__call__"
    calls = []

    def fail(self: Any, with_checkpoints: bool) -> None:
        calls.append(with_checkpoints)
        raise StoreError("no network") from OSError("no network")

    memory.add(spec_of())
    with monkeypatch.context() as patch:
        patch.setattr(publish, fail)
        with pytest.raises(StoreError, match="no network"):
            run_campaign(Campaign([spec_of()], memory), InProcess(), recorder)
    assert calls
    assert memory.record(spec_of().run_id).state is State.PENDING
    assert run_campaign(Campaign([spec_of()], memory), InProcess(), recorder).is_complete()


def test_urls_that_cannot_be_opened_are_explained() -> None:
    with pytest.raises(UsageError, match=r"expected a URL that fsspec can open, such as .*, got nothing://x"):
        RunStore("nothing://x")
    with pytest.raises(StoreError, match="headway fetch memory://x FOLDER"):
        RunStore("memory://x").folder("0" * 16)


def test_it_is_pickled_by_its_url(memory: RunStore) -> None:
    finish(memory, plain(0))
    copy = pickle.loads(pickle.dumps(memory))
    assert (copy.place, copy.lease) == (memory.place, memory.lease)
    assert copy.status() == memory.status()
