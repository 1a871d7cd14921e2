from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headway.analysis.rundata import from_arrow, from_lists, read_parquet
from headway.errors import DamagedError
from headway.runs.metrics import to_parquet

COLUMNS: dict[str, list[Any]] = {
    "epoch": [1, 2, 3],
    "loss": [0.5, math.nan, math.inf],
    "gap": [None, 1.5, None],
    "count": [[1, 2], [3, 4], [5, 6]],
    "arms": [[0.5, math.nan], [1.0, 2.0], [3.0, 4.0]],
    "ragged": [[1.0], [], [2.0, 3.0]],
    "hole": [[1.0, 2.0], None, [3.0, 4.0]],
    "word": ["a", None, "b"],
    "flag": [True, False, True],
    "doubt": [True, None, False],
}
EXPECTED: dict[str, Any] = {
    "epoch": [1, 2, 3],
    "loss": [0.5, np.nan, np.inf],
    "gap": [np.nan, 1.5, np.nan],
    "count": [[1, 2], [3, 4], [5, 6]],
    "arms": [[0.5, np.nan], [1, 2], [3, 4]],
    "ragged": [[1, np.nan], [np.nan, np.nan], [2, 3]],
    "hole": [[1, 2], [np.nan, np.nan], [3, 4]],
    "flag": [True, False, True],
    "doubt": [1, np.nan, 0],
}


@pytest.fixture
def arrays() -> dict[str, Any]:
    return read_parquet(to_parquet(COLUMNS, {"key": "text"}), "file")[0]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_column_becomes_an_array(arrays: dict[str, Any], name: str) -> None:
    np.testing.assert_array_equal(arrays[name], EXPECTED[name])
    assert arrays[name].dtype.kind == {"epoch": "i", "count": "i", "flag": "b"}.get(name, "f")


@pytest.mark.parametrize("name", EXPECTED)
def test_python_values_become_the_same_array(arrays: dict[str, Any], name: str) -> None:
    again = from_lists(COLUMNS[name])
    np.testing.assert_array_equal(again, arrays[name])
    assert again.dtype == arrays[name].dtype


def test_words_and_metadata(arrays: dict[str, Any]) -> None:
    assert arrays["word"].tolist() == ["a", None, "b"] == from_lists(COLUMNS["word"]).tolist()
    assert read_parquet(to_parquet(COLUMNS, {"key": "text"}), "file")[1]["key"] == "text"


def test_arrays_are_read_only(arrays: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="read-only"):
        arrays["loss"][0] = 1


def test_only_the_wanted_columns_are_read() -> None:
    found, _ = read_parquet(to_parquet(COLUMNS, {}), "file", {"loss", "absent"})
    assert list(found) == ["loss"]


def test_no_rows() -> None:
    assert from_arrow(pa.chunked_array([], pa.list_(pa.float64()))).shape == (0, 0)
    assert from_arrow(pa.array([], pa.int64())).shape == (0,)
    assert from_lists([]).shape == (0,)


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_damaged_file_is_named(cut: int) -> None:
    content = to_parquet(COLUMNS, {})
    with pytest.raises(DamagedError, match="run 7: expected a whole Parquet file"):
        read_parquet(content[:cut], "run 7")
