from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import NewerSchemaError
from headway.runs.checkpoints import SLOTS, CheckpointFound, find_newest, write_checkpoint

RUN = "0123456789abcdef"


def write(folder: Path, slot: int, step: int, run_id: str = RUN) -> Path:
    path = folder / SLOTS[slot]
    write_checkpoint(path, run_id, step, b"rows %d" % step, lambda file: file.write(b"payload %d" % step))
    return path


def found(slot: int, step: int) -> CheckpointFound:
    return CheckpointFound(SLOTS[slot], step, b"rows %d" % step, b"payload %d" % step)


def test_there_may_be_none(tmp_path: Path) -> None:
    assert find_newest(tmp_path, RUN) == (None, ())


def test_the_newest_counts_whatever_its_slot(tmp_path: Path) -> None:
    write(tmp_path, 0, 5)
    assert find_newest(tmp_path, RUN) == (found(0, 5), ())
    write(tmp_path, 1, 9)
    assert find_newest(tmp_path, RUN) == (found(1, 9), ())
    write(tmp_path, 0, 10)
    assert find_newest(tmp_path, RUN) == (found(0, 10), ())


def test_the_payload_can_be_left_out(tmp_path: Path) -> None:
    write(tmp_path, 0, 5)
    assert find_newest(tmp_path, RUN, with_payload=False)[0] == CheckpointFound(SLOTS[0], 5, b"rows 5", b"")


def test_every_truncation_and_every_flipped_bit_falls_back(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    path = write(tmp_path, 1, 2)
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(len(whole))]
    damaged += [whole + b"x", bytes(len(whole)), whole * 2]
    for content in damaged:
        path.write_bytes(content)
        newest, problems = find_newest(tmp_path, RUN)
        assert newest == found(0, 1)
        assert len(problems) == 1
        assert "checkpoint.1: " in problems[0]


def test_when_both_are_damaged_there_is_none(tmp_path: Path) -> None:
    for slot in (0, 1):
        write(tmp_path, slot, slot + 1).write_bytes(b"torn")
    newest, problems = find_newest(tmp_path, RUN)
    assert newest is None
    assert len(problems) == 2


def test_a_checkpoint_of_another_run_is_not_used(tmp_path: Path) -> None:
    write(tmp_path, 0, 5, "f" * 16)
    newest, problems = find_newest(tmp_path, RUN)
    assert newest is None
    assert "expected a checkpoint of run 0123456789abcdef, got one of run 'ffffffffffffffff'" in problems[0]


def test_a_newer_version_is_an_error_and_no_reason_to_fall_back(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    path = write(tmp_path, 1, 2)
    forge(path, lambda footer: {**footer, "schema": 3})
    with pytest.raises(NewerSchemaError, match="newer headway: schema 3, this version reads up to 1"):
        find_newest(tmp_path, RUN)


@pytest.mark.parametrize(
    "change", [{"step": -1}, {"step": "2"}, {"run_id": 3}, {"rows": None}, {"payload": {"length": 10**18}}]
)
def test_a_forged_footer_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write(tmp_path, 0, 1)
    forge(write(tmp_path, 1, 2), lambda footer: {**footer, **change})
    assert find_newest(tmp_path, RUN)[0] == found(0, 1)


def test_a_failing_callback_leaves_the_slot_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 1)
    with pytest.raises(ZeroDivisionError):
        write_checkpoint(path, RUN, 2, b"", lambda file: 1 / 0)
    assert find_newest(tmp_path, RUN)[0] == found(0, 1)


def test_a_slot_that_is_a_folder_is_a_problem_and_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / SLOTS[0]).mkdir()
    write(tmp_path, 1, 2)
    newest, problems = find_newest(tmp_path, RUN)
    assert newest == found(1, 2)
    assert "expected a regular file" in problems[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_never_taken_for_a_checkpoint(tmp_path: Path, data: bytes) -> None:
    (tmp_path / SLOTS[0]).write_bytes(data)
    assert find_newest(tmp_path, RUN)[0] is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(), st.binary(), st.integers(0, 2**62))
def test_anything_comes_back(tmp_path: Path, rows: bytes, payload: bytes, step: int) -> None:
    write_checkpoint(tmp_path / SLOTS[1], RUN, step, rows, lambda file: file.write(payload))
    assert find_newest(tmp_path, RUN) == (CheckpointFound(SLOTS[1], step, rows, payload), ())


def forge(path: Path, change) -> None:  # type: ignore[no-untyped-def]
    """Replace a checkpoint's footer, with valid sums, as an attacker or a newer version would."""
    data = path.read_bytes()
    length = int.from_bytes(data[-40:-32], "little")
    footer = json.dumps(change(json.loads(data[-40 - length : -40]))).encode()
    tail = len(footer).to_bytes(8, "little") + hashlib.sha256(footer).digest()
    path.write_bytes(data[: -40 - length] + footer + tail)
