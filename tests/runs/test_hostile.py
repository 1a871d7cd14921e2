from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import DamagedError, HeadwayError
from headway.runs import RunSpec, RunStore, State
from headway.runs.metrics import RowLog, from_parquet, to_parquet
from tests.runs.helpers import checkpointed, finish, spec_of

FILES = ("spec.json", "status.json", "metrics.parquet", "checkpoint.0", "checkpoint.1", "claim.1")
QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Some bytes of ``whole`` changed, its end cut off, or something else altogether."""
    if not whole or draw(st.booleans()):
        return draw(st.binary(max_size=100))
    content = bytearray(whole)
    for _ in range(draw(st.integers(0, 3))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))])


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    store = RunStore(tmp_path_factory.mktemp("store"))
    finish(store, spec_of(0))
    checkpointed(store, spec_of(1), 1, 2).interrupt()
    return store


@QUIET
@given(st.data())
def test_no_damage_to_any_file_makes_a_reader_fail_in_another_way(two_runs: RunStore, data: st.DataObject) -> None:
    run_id = spec_of(data.draw(st.integers(0, 1))).run_id
    path = two_runs.folder(run_id) / data.draw(st.sampled_from(FILES))
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(data.draw(damaged(before or b"")))
    try:
        assert len(two_runs.status()) == 2
        assert two_runs.record(run_id).run_id == run_id
        assert isinstance(two_runs.problems(run_id), list)
        with contextlib.suppress(HeadwayError):
            assert two_runs.metrics(run_id)["step"] in ([1], [1, 2], [1, 2, 3])
    except KeyError:
        assert two_runs.metrics(run_id) == {}  # its checkpoints are gone, or its status
    finally:
        path.unlink() if before is None else path.write_bytes(before)


@QUIET
@given(st.data())
def test_a_damaged_parquet_file_never_fails_in_another_way(data: st.DataObject) -> None:
    log = RowLog()
    for step in range(5):
        log.append({"step": step, "loss": 0.5, "arms": [1, 2.5], "name": "x", "ok": True})
    whole = to_parquet(log.columns(), {"headway.run_id": "x"})
    with contextlib.suppress(DamagedError):
        from_parquet(data.draw(damaged(whole)), "file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", FILES)
def test_named_pipes_and_folders_do_not_hang_a_reader(store: RunStore, spec: RunSpec, name: str) -> None:
    finish(store, spec)
    path = store.folder(spec.run_id) / name
    for plant in (os.mkfifo, Path.mkdir):
        path.unlink(missing_ok=True)
        plant(path)
        assert len(store.status()) == 1
        with contextlib.suppress(HeadwayError):
            store.metrics(spec.run_id)
        with contextlib.suppress(HeadwayError):
            run = store.lock(spec)
            if run:
                run.interrupt()


def test_a_link_to_another_file_is_replaced_and_its_target_left_alone(
    tmp_path: Path, store: RunStore, spec: RunSpec
) -> None:
    folder = store.root / store.add(spec)
    target = tmp_path / "precious"
    target.write_text("precious")
    for name in ("status.json", "metrics.parquet", "checkpoint.0"):
        (folder / name).symlink_to(target)
    assert store.status()[0].state is State.CORRUPT
    finish(store, spec)
    assert target.read_text() == "precious"
    assert store.problems(spec.run_id) == []


def test_a_run_folder_that_is_a_link_is_refused_and_its_target_left_alone(
    tmp_path: Path, store: RunStore, spec: RunSpec
) -> None:
    store.add(spec_of(1))
    elsewhere = RunStore(tmp_path / "elsewhere")
    finish(elsewhere, spec)
    target, link = elsewhere.root / spec.run_id, store.root / spec.run_id
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    link.symlink_to(target)
    for act in (store.lock, store.add, lambda spec: store.reset(spec.run_id), lambda spec: store.record(spec.run_id)):
        with pytest.raises(DamagedError, match=r"expected the folder of a run, got a symbolic link at .*; remove"):
            act(spec)
    listed = {record.run_id: record for record in store.status()}
    assert listed[spec.run_id].state is State.CORRUPT
    assert "got a symbolic link" in listed[spec.run_id].reason
    assert listed[spec_of(1).run_id].state is State.PENDING
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    link.unlink()
    finish(store, spec)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
