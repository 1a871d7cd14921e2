from __future__ import annotations

import io
import math
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DamagedError, MissingExtraError, StoreError
from headway.runs import metrics
from headway.runs.metrics import MAX_TEXT, MAX_VALUES, RowLog, check_pages, from_parquet, to_parquet

INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats()
KINDS = {
    "i": INTEGERS,
    "f": FLOATS,
    "n": INTEGERS | FLOATS,
    "b": st.booleans(),
    "s": st.text(st.characters(exclude_categories=["Cs"])),
    "li": st.lists(INTEGERS, max_size=4),
    "lf": st.lists(FLOATS, max_size=4),
    "ln": st.lists(INTEGERS | FLOATS | st.booleans(), max_size=4),
}
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.none() | kind for name, kind in KINDS.items()}), max_size=8
)


def bits(value: Any) -> Any:
    """Tell NaN from NaN and 0.0 from -0.0, but not 1 from 1.0: a column has one type of number."""
    if isinstance(value, list):
        return [bits(item) for item in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "nan" if math.isnan(value) else struct.pack("d", value) if isinstance(value, float) else value
    return value


def as_floats(value: Any) -> Any:
    if isinstance(value, list):
        return [as_floats(item) for item in value]
    return None if value is None else float(value)


def logged(rows: list[dict[str, Any]]) -> RowLog:
    log = RowLog()
    for row in rows:
        log.append(row)
    return log


@given(ROWS)
def test_rows_come_back_from_their_encoding_bit_for_bit(rows: list[dict[str, Any]]) -> None:
    log = logged(rows)
    back = RowLog(log.encode())
    assert back.encode() == log.encode()
    assert len(back) == len(rows)
    assert {n: bits(v) for n, v in back.columns().items()} == {n: bits(v) for n, v in log.columns().items()}


@given(ROWS)
def test_columns_come_back_from_parquet(rows: list[dict[str, Any]]) -> None:
    columns = logged(rows).columns()
    data = to_parquet(columns, {"key": "value"})
    back, metadata = from_parquet(data, "file")
    assert metadata["key"] == "value"
    assert list(back) == list(columns)
    for name, values in columns.items():
        items = [item for value in values for item in (value if isinstance(value, list) else [value])]
        has_float = any(isinstance(item, float) for item in items)
        assert bits(back[name]) == bits(as_floats(values) if has_float else values)


def test_the_same_rows_give_the_same_bytes() -> None:
    rows = [{"step": i, "loss": 1 / (i + 1), "arms": [i, i + 0.5]} for i in range(300)]
    one, two = logged(rows), RowLog(logged(rows[:150]).encode())
    for row in rows[150:]:
        two.append(row)
    assert to_parquet(one.columns(), {"a": "b"}) == to_parquet(two.columns(), {"a": "b"})


def test_columns_by_hand() -> None:
    log = logged([{"epoch": 0, "loss": 0.5}, {"epoch": 1, "loss": 1, "arms": (1, 2)}])
    assert log.columns() == {"epoch": [0, 1], "loss": [0.5, 1], "arms": [None, [1, 2]]}
    back, _ = from_parquet(to_parquet(log.columns(), {}), "file")
    assert back == {"epoch": [0, 1], "loss": [0.5, 1.0], "arms": [None, [1, 2]]}
    assert type(back["epoch"][0]) is int
    assert type(back["loss"][1]) is float


def test_arrays_and_tensors_become_numbers_and_lists() -> None:
    numpy = pytest.importorskip("numpy")
    log = logged([{"x": numpy.float32(0.5), "y": numpy.arange(3), "z": numpy.array(2)}])
    assert log.columns() == {"x": [0.5], "y": [[0, 1, 2]], "z": [2]}


def test_truth_values_in_lists_become_numbers() -> None:
    log = logged([{"x": [True, False], "y": (True, 0.5), "z": np.array([False, True])}])
    back, _ = from_parquet(to_parquet(log.columns(), {}), "file")
    assert bits(back) == bits({"x": [[1, 0]], "y": [[1.0, 0.5]], "z": [[0, 1]]})
    assert RowLog(b'{"x": [true, false]}\n').columns() == {"x": [[1, 0]]}  # from a checkpoint of an earlier version


def test_integers_beside_floats_are_rounded_to_floats() -> None:
    log = logged([{"x": 2**53 + 1, "y": [2**53 + 1]}, {"x": 0.5, "y": [0.5]}])
    back, _ = from_parquet(to_parquet(log.columns(), {}), "file")
    assert back == {"x": [2.0**53, 0.5], "y": [[2.0**53], [0.5]]}
    assert logged([{"x": 2**53 + 1}]).columns() == {"x": [2**53 + 1]}


def test_what_parquet_cannot_hold_is_a_store_error() -> None:
    with pytest.raises(StoreError, match=r"expected metrics that a Parquet file can hold, got .*; save\(\) a file"):
        to_parquet({"x": [1, "a"]}, {})


@pytest.mark.parametrize(
    ("row", "named"),
    [([1], "list"), ({1: 2}, "1"), ({"": 2}, "''")]
    + [({"x": bad}, "'x'") for bad in (object(), {"a": 1}, ["a"], [[1]], [None], 2**63, "\ud800")],
)
def test_bad_rows_are_refused_and_leave_the_log_as_it_was(row: Any, named: str) -> None:
    log = logged([{"a": 1}])
    with pytest.raises(StoreError, match=named):
        log.append(row)
    assert log.columns() == {"a": [1]}


@pytest.mark.parametrize(("one", "two"), [(1, "a"), (1, [1]), (True, 1), ([1], 1.0), ("a", 1.0)])
def test_a_column_keeps_its_kind(one: Any, two: Any) -> None:
    log = logged([{"x": one}, {"x": None}])
    with pytest.raises(StoreError, match=r"expected a .* in metrics column 'x' as before, got a"):
        log.append({"x": two, "y": 1})
    log.append({"x": one})
    assert len(log) == 3


@pytest.mark.parametrize("data", [b"\n", b"x\n", b"3\n", b'{"a": {}}\n', b"[" * 100_000])
def test_an_encoding_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="expected"):
        RowLog(data)


@pytest.mark.parametrize("rows", [[], [{}], [{"a": None}], [{"a": []}]])
def test_logs_with_little_in_them_are_written_too(rows: list[dict[str, Any]]) -> None:
    back, _ = from_parquet(to_parquet(logged(rows).columns(), {}), "file")
    assert back == logged(rows).columns()


def test_a_damaged_parquet_file_is_a_store_error() -> None:
    data = to_parquet(logged([{"a": i * 0.1} for i in range(100)]).columns(), {})
    for broken in (b"", b"PAR1", data[:-1], data[: len(data) // 2], data[10:]):
        with pytest.raises(StoreError, match="file: expected a whole Parquet file, got"):
            from_parquet(broken, "file")


def test_columns_of_foreign_types_are_refused() -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table({"x": [{"nested": 1}]}), sink)
    with pytest.raises(StoreError, match="a column 'x' of type struct"):
        from_parquet(sink.getvalue().to_pybytes(), "file")


def test_without_pyarrow_the_message_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'headway-torch\[experiments\]'"):
        to_parquet({}, {})


def parquet_of(column: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"column": column}), file)
    return file.getvalue()


def test_a_small_file_with_very_many_rows_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet_of(pa.array(np.ones(MAX_VALUES + 1)))
    assert len(data) < 10**5
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(DamagedError, match=f"file: expected a whole Parquet file, got {MAX_VALUES + 1} values or more"):
        from_parquet(data, "file")


@pytest.mark.parametrize("column", [[1.0] * 60, [[1.0] * 10] * 6, ["x"] * 60], ids=["numbers", "lists", "texts"])
def test_reading_ends_when_there_is_too_much(monkeypatch: pytest.MonkeyPatch, column: list[Any]) -> None:
    data = parquet_of(pa.array(column))
    monkeypatch.setattr("headway.runs.metrics.ROWS_AT_ONCE", 2)
    monkeypatch.setattr("headway.runs.metrics.MAX_VALUES", 60)
    assert from_parquet(data, "file")[0] == {"column": column}
    monkeypatch.setattr("headway.runs.metrics.MAX_VALUES", 39)
    with pytest.raises(DamagedError, match="values or more, where 39 are the most"):
        from_parquet(data, "file")


def test_a_text_that_is_repeated_takes_room_once() -> None:
    columns, _ = from_parquet(parquet_of(pa.array(["long" * 1000] * 99 + [None])), "file")
    assert columns["column"] == ["long" * 1000] * 99 + [None]
    assert len({id(value) for value in columns["column"]}) == 2


@pytest.mark.parametrize("last", [{"a": 1, "b": 1}, {"a": [1, 2, 3]}])
def test_more_than_can_be_read_back_is_not_logged(monkeypatch: pytest.MonkeyPatch, last: dict[str, Any]) -> None:
    monkeypatch.setattr("headway.runs.metrics.MAX_VALUES", 3)
    log = logged([{"a": None}])
    with pytest.raises(StoreError, match="expected at most 3 values in a run's metrics, got more; log less"):
        log.append(last)
    log.append({"a": 1})  # a row that was refused leaves nothing behind
    assert from_parquet(to_parquet(log.columns(), {}), "file")[0] == {"a": [None, 1]}


def test_a_text_that_could_not_be_read_back_is_not_logged() -> None:
    log = logged([{"a": "x" * MAX_TEXT}])
    with pytest.raises(StoreError, match=f"expected a text of at most {MAX_TEXT} bytes in metrics column 'a'"):
        log.append({"a": "x" * (MAX_TEXT + 1)})
    assert from_parquet(to_parquet(log.columns(), {}), "file")[0] == {"a": ["x" * MAX_TEXT]}


def test_the_values_of_pages_are_counted_whatever_the_file_says_of_its_columns() -> None:
    data = parquet_of(pa.array([[1.0] * 1000] * 3))
    check_pages(data, 3000)
    with pytest.raises(ValueError, match="3000 values or more, where 2999 are the most"):
        check_pages(data, 2999)
    with pytest.raises(ValueError, match="bytes are the most"):
        check_pages(data, 3000, 10)
    for cut in range(len(data)):
        with pytest.raises(ValueError, match=r"no Parquet file|header|outside|negative|longer|most"):
            check_pages(data[:cut], 3000)


READING = """
import os, sys
from headway.runs.metrics import from_parquet
from headway.errors import DamagedError
import pyarrow.parquet, pyarrow.compute
data = sys.stdin.buffer.read()
from_parquet(data, "file")  # whatever is started once is started now
before = len(os.listdir("/proc/self/task"))
for content in (data, data[:200] + bytes([data[200] ^ 255]) + data[201:]):
    try:
        from_parquet(content, "file")
    except DamagedError:
        pass
print(len(os.listdir("/proc/self/task")) - before, "more;", before, "before")
sys.exit(before > int(sys.argv[1]))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads cannot be counted here")
def test_reading_starts_no_thread_that_outlives_it() -> None:
    data = parquet_of(pa.array(np.random.default_rng(0).random(50_000)))
    count = "import os, pyarrow.parquet, pyarrow.compute; print(len(os.listdir('/proc/self/task')))"
    none = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True).stdout.strip()
    result = subprocess.run([sys.executable, "-c", READING, none], input=data, capture_output=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith(b"0 more")


def test_parquet_is_opened_in_one_place() -> None:
    package = Path(metrics.__file__).parents[1]
    opens = re.compile(r"ParquetFile\(|parquet\.read_")
    found = [path.name for path in package.rglob("*.py") if opens.search(path.read_text("utf-8"))]
    assert found == ["metrics.py"]
