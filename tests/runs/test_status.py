from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import HeadwayError, NewerSchemaError, StoreError
from headway.runs import FileSum, State, Status

PLAIN = Status(
    run_id="0123456789abcdef",
    state=State.RUNNING,
    attempt=2,
    host="box",
    pid=17,
    started_at=1.5,
    updated_at=2.5,
    seconds=3.5,
    step=10,
    total=100,
    speed=0.5,
    losses={"train": 0.25},
    files={"metrics.parquet": FileSum(3, "abc"), "final.pt": FileSum(4, "def")},
    error="Traceback",
    note="note",
)
GOOD = json.loads(PLAIN.to_json())


def test_a_status_comes_back() -> None:
    assert Status.from_json(PLAIN.to_json()) == PLAIN
    assert str(PLAIN.state) == "running"


def test_losses_that_json_does_not_have_come_back() -> None:
    losses = {"a": math.nan, "b": math.inf, "c": -math.inf}
    back = Status.from_json(Status(**{**vars(PLAIN), "losses": losses}).to_json()).losses
    assert math.isnan(back["a"])
    assert (back["b"], back["c"]) == (math.inf, -math.inf)


def test_a_long_traceback_keeps_its_end_and_can_be_read_back() -> None:
    long = "\U0001f600" * 10**6 + "the end"
    text = Status(**{**vars(PLAIN), "error": long, "note": long}).to_json()
    assert Status.from_json(text).error.endswith("the end")


def test_a_status_too_long_to_be_read_back_is_refused() -> None:
    with pytest.raises(StoreError, match="name fewer losses"):
        Status(**{**vars(PLAIN), "losses": {"x" * 2**20: 1.0}}).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "dome"}, "expected a state among running, done, failed, interrupted for state, got .*dome"),
        ({"state": "corrupt"}, "expected a state among"),
        ({"state": 3}, "for state"),
        ({"step": -1}, "for step"),
        ({"step": 1.5}, "for step"),
        ({"attempt": True}, "for attempt"),
        ({"attempt": None}, "for attempt"),
        ({"seconds": "1"}, "for seconds"),
        ({"updated_at": 10**400}, "for updated_at"),
        ({"losses": []}, "expected a mapping for losses"),
        ({"losses": {"x": "high"}}, "expected a number for a loss, got 'high'"),
        ({"losses": {"x": 10**400}}, "expected a number for a loss"),
        ({"files": {"../spec.json": {"length": 1, "sha256": ""}}}, "expected plain file names"),
        ({"files": {"spec.json": {"length": 1, "sha256": ""}}}, "expected plain file names"),
        ({"files": {"a": 1}}, "length, sha256"),
    ],
)
def test_wrong_fields_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Status.from_json(json.dumps({**GOOD, **change}))


def test_a_status_of_a_newer_version_says_so() -> None:
    with pytest.raises(NewerSchemaError, match="newer headway: schema 2"):
        Status.from_json('{"schema": 2}')


@given(st.data())
def test_truncated_and_flipped_text_never_raises_anything_else(data: st.DataObject) -> None:
    text = bytearray(PLAIN.to_json().encode())
    text[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for broken in (bytes(text), bytes(text[: data.draw(st.integers(0, len(text)))])):
        try:
            Status.from_json(broken)
        except HeadwayError:
            continue


@given(st.integers(0, len(PLAIN.to_json().strip()) - 1))
def test_no_part_passes_for_the_whole(length: int) -> None:
    with pytest.raises(StoreError):
        Status.from_json(PLAIN.to_json()[:length])
