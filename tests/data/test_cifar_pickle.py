import os
import pickle
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.cifar import unpickle
from headway.errors import DataError
from tests.data.formats import colour_rows, mutated, python2_batch, python3_batch

ROWS = colour_rows(2)
PYTHON2 = python2_batch(ROWS, [3, 9])
PYTHON3 = python3_batch(ROWS, [3, 9])
PROTO = b"\x80\x02"


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call  # type: ignore[return-value]


def refused(data: bytes, words: str | None = None) -> None:
    with pytest.raises(DataError, match=words) as caught:
        unpickle(data, "some/batch")
    assert str(caught.value).startswith("some/batch: expected a protocol 2 pickle of plain values")


def test_a_batch_of_python_2_is_read_as_bytes() -> None:
    batch = unpickle(PYTHON2, "f")
    assert isinstance(batch, dict)
    assert batch[b"labels"] == [3, 9]
    assert batch[b"batch_label"] == b"training batch 1 of 5"
    assert batch[b"filenames"] == [b"image_0.png", b"image_1.png"]
    assert np.array_equal(batch[b"data"].values, ROWS)


def test_a_batch_of_python_3_is_read() -> None:
    batch = unpickle(PYTHON3, "f")
    assert isinstance(batch, dict)
    assert np.array_equal(batch.pop(b"data").values, ROWS)
    assert batch == {
        b"batch_label": b"a batch", b"labels": [3, 9], "empty": [], "one": [1], "none": None,
    }  # fmt: skip


@pytest.mark.parametrize("data", [PYTHON2, PYTHON3])
def test_it_agrees_with_the_standard_library(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the old name of numpy's module
        expected = pickle.loads(data, encoding="bytes")
    found = unpickle(data, "f")
    assert isinstance(found, dict)
    assert found.keys() == expected.keys()
    found[b"data"] = found[b"data"].values
    for key in found:
        assert np.array_equal(found[key], expected[key])
        assert type(found[key]) is type(expected[key])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**99), 2**9) | st.text(max_size=8) | st.binary(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.tuples(inner)
            | st.tuples(inner, inner, inner, inner)
            | st.dictionaries(st.text(max_size=5), inner, max_size=5)
        ),
        max_leaves=20,
    )
)  # fmt: skip
@settings(max_examples=150)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    data = pickle.dumps(value, protocol=2)
    if b"__builtin__\nbytes" in data:  # how Python 3 writes b"" for Python 2; no official file has it
        refused(data, "__builtin__.bytes")
    else:
        assert unpickle(data, "f") == value


def test_a_call_of_a_foreign_function_is_refused_and_not_made(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    calls = [
        Call(os.system, f"touch {witness}"),
        Call(eval, f"open({str(witness)!r}, 'w')"),
        Call(open, str(witness), "w"),
        Call(os.mkdir, str(witness)),
    ]
    for call in calls:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            refused(pickle.dumps({"data": call}, protocol=protocol))
        assert not witness.exists()
    assert pickle.loads(pickle.dumps(calls[3])) is None  # the same bytes do run elsewhere
    assert witness.is_dir()


def test_the_error_names_what_the_file_refers_to() -> None:
    refused(PROTO + b"cos\nsystem\n(U\x04true\x85R.", r"a reference to 'os\.system', which was not followed")
    refused(PROTO + b"cnumpy.core.multiarray\nscalar\n.", r"numpy\.core\.multiarray\.scalar")
    refused(PROTO + b"c_codecs\ndecode\n.", r"_codecs\.decode")
    refused(PROTO + b"c" + b"x" * 10_000 + b"\ny\n.", r"a reference to 'x{100}', which")


@pytest.mark.parametrize(
    "code",
    [
        b"(U\x04trueios\nsystem\n.",  # INST
        b"(cos\nsystem\nU\x04trueo.",  # OBJ
        b"cnumpy\nndarray\n)\x81.",  # NEWOBJ of what is no class
        b"\x82\x01.",  # EXT1
        b"Pabc\n.",  # PERSID
        b"K\x01Q.",  # BINPERSID
        b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93.",  # STACK_GLOBAL
        b"K\x01)R.",
        b"c_codecs\nencode\n)R.",
        b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.",
        b"c_codecs\nencode\nX\x03\x00\x00\x00\xe2\x82\xacX\x06\x00\x00\x00latin1\x86R.",
        b"cnumpy\ndtype\n)R.",
        b"cnumpy\ndtype\nU\x01O\x85R.",
        b"]}U\x01aK\x02sb.",
        b"K\x01K\x02a.",
        b"]K\x02K\x03s.",
        b"}(K\x02u.",
        b"}]K\x03s.",
        b"\x85.",
        b".",
        b"t.",
        b"q\x01.",
        b"h\x07.",
        b"K",
        b"",
        b"\xff.",
        b"T\xff\xff\xff\x7fabc.",
        b"cnumpy\nndarray.",
        b"c\xff\n\xff\n.",
    ],
)
def test_what_makes_no_sense_is_refused(code: bytes) -> None:
    refused(PROTO + code)


@pytest.mark.parametrize(
    "state",
    [
        b"N",
        b")",
        b"(K\x01)NK\x00U\x01at",
        b"(K\x01K\x01K\x01\x86NK\x00U\x01at",
        b"(K\x01K\x01K\x01\x86cnumpy\ndtype\nU\x02u1\x85RK\x01U\x01at",
        b"(K\x01K\x02K\x01\x86cnumpy\ndtype\nU\x02u1\x85RK\x00U\x01at",
        b"(K\x01J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86cnumpy\ndtype\nU\x02u1\x85RK\x00U\x01at",
    ],
)
def test_an_array_must_be_a_matrix_of_bytes_of_the_right_length(state: bytes) -> None:
    array = b"cnumpy.core.multiarray\n_reconstruct\n)R" + state + b"b"
    refused(PROTO + b"}U\x04data" + array + b"s.", "an array")


def test_what_a_file_does_to_a_name_ends_with_the_file() -> None:
    named = b"cnumpy.core.multiarray\n_reconstruct\n"
    refused(PROTO + named + b"N}X\x0c\x00\x00\x00__defaults__K\x01\x85s\x86b.", "got a function")
    batch = unpickle(PYTHON2, "f")
    assert isinstance(batch, dict)
    assert np.array_equal(batch[b"data"].values, ROWS)


def test_other_protocols_are_read_as_far_as_they_name_the_same() -> None:
    for protocol in (3, 4):
        batch = unpickle(python3_batch(ROWS, [1, 2], protocol), "f")
        assert isinstance(batch, dict)
        assert np.array_equal(batch[b"data"].values, ROWS)
    refused(python3_batch(ROWS, [1, 2], 5), "_frombuffer")


def test_a_huge_memo_index_costs_no_memory() -> None:
    tracemalloc.start()
    try:
        assert unpickle(PROTO + b"K\x07r\xff\xff\xff\xff.", "f") == 7
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_deep_nesting_is_harmless() -> None:
    value = unpickle(PROTO + b"]" * 50_000 + b"a" * 49_999 + b".", "f")
    assert isinstance(value, list)
    del value


@given(mutated(PYTHON2) | mutated(PYTHON3) | st.binary(max_size=60).map(lambda tail: PROTO + tail))
@settings(max_examples=600)
def test_damaged_pickles_are_refused_or_read(data: bytes) -> None:
    try:
        unpickle(data, "f")
    except DataError:
        return
