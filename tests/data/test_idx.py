import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data import load
from headway.data.idx import every_nth_of_class, idx_size, parse_idx, parse_images, parse_labels
from headway.errors import DataError
from tests.data.formats import grey_images, idx_bytes, labels_for, mutated

IMAGES = idx_bytes(grey_images(3))
LABELS = idx_bytes(labels_for(12))


def test_images_get_a_channel_and_memory_of_their_own() -> None:
    images = parse_images(IMAGES, (28, 28), 3, "f")
    assert images.shape == (3, 1, 28, 28)
    assert np.array_equal(images[:, 0], grey_images(3))
    assert images.flags.writeable


def test_labels_become_int64() -> None:
    labels = parse_labels(LABELS, 10, 12, "f")
    assert labels.dtype == np.int64
    assert labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def test_the_size_of_a_file_by_hand() -> None:
    assert idx_size(60_000, 28, 28) == 47_040_016
    assert idx_size(10_000) == 10_008
    assert idx_size(3, 28, 28) == len(IMAGES)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["0x00000803", "empty"]),
        (b"\x00\x00", ["0x00000803", "0x0000"]),
        (LABELS, ["0x00000803", "0x00000801"]),
        (b"\x00\x00\x0d\x03" + IMAGES[4:], ["0x00000803", "0x00000d03"]),
        (IMAGES[:10], ["16 bytes", "10 bytes"]),
        (IMAGES[:-1], [f"{len(IMAGES)} bytes", f"{len(IMAGES) - 1} bytes"]),
        (IMAGES + b"x", [f"{len(IMAGES)} bytes", f"{len(IMAGES) + 1} bytes"]),
        (b"\x00\x00\x08\x03" + struct.pack(">3I", *[2**32 - 1] * 3), ["(4294967295, ", "16 bytes"]),
        (idx_bytes(grey_images(2, side=27)), ["28x28", "27x27"]),
        (idx_bytes(grey_images(0)), ["from 1 to 3", "got 0"]),
        (idx_bytes(grey_images(4)), ["from 1 to 3", "got 4"]),
    ],
)
def test_bad_images_are_named_with_what_was_expected(data: bytes, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        parse_images(data, (28, 28), 3, "some/file.gz")
    message = str(caught.value)
    assert message.startswith("some/file.gz: expected ")
    assert all(word in message for word in words), message


def test_a_label_that_names_no_class_is_refused() -> None:
    with pytest.raises(DataError, match=r"f: expected labels from 0 to 9, got a label 10;"):
        parse_labels(idx_bytes(np.array([1, 10, 3], dtype=np.uint8)), 10, 5, "f")


def test_no_labels_at_all_are_refused() -> None:
    with pytest.raises(DataError, match="got 0"):
        parse_labels(idx_bytes(np.array([], dtype=np.uint8)), 10, 5, "f")


@given(mutated(IMAGES))
@settings(max_examples=300)
def test_damaged_images_are_refused_or_valid(data: bytes) -> None:
    try:
        images = parse_images(data, (28, 28), 3, "f")
    except DataError:
        return
    assert images.shape[1:] == (1, 28, 28)
    assert 1 <= len(images) <= 3


@given(mutated(LABELS) | st.binary(max_size=40))
@settings(max_examples=300)
def test_damaged_labels_are_refused_or_valid(data: bytes) -> None:
    try:
        labels = parse_labels(data, 10, 12, "f")
    except DataError:
        return
    assert 1 <= len(labels) <= 12
    assert labels.min() >= 0
    assert labels.max() < 10


@given(st.binary(max_size=60), st.integers(1, 4))
@settings(max_examples=200)
def test_any_bytes_are_refused_or_an_array(data: bytes, dimensions: int) -> None:
    try:
        array = parse_idx(data, dimensions, "f")
    except DataError:
        return
    assert array.ndim == dimensions


def test_every_nth_of_class_by_hand() -> None:
    labels = np.array([0, 1, 0, 1, 1, 0, 0, 2])
    marked = every_nth_of_class(labels, 2)
    assert marked.tolist() == [False, False, True, True, False, False, True, False]


def test_digits_are_the_default_and_need_no_files() -> None:
    digits = load()
    assert digits.name == "digits"
    assert digits.source == "embedded"
    assert digits.note == ""
    assert digits.image_shape == (1, 8, 8)
    assert digits.train.images.shape == (1442, 1, 8, 8)
    assert digits.test.images.shape == (355, 1, 8, 8)
    assert digits.train.images.dtype == np.uint8
    assert digits.train.labels.dtype == np.int64
    assert digits.train.images.max() == digits.train.pixel_max == 16
    assert digits.class_names == tuple("0123456789")


def test_digits_never_change() -> None:
    assert load("digits").fingerprint == "96b08a78e982c8a38b59514d19c0c1bc3301bbcd24d16fa7159fdcb2fd0fac89"


def test_each_class_is_split_in_the_same_proportion() -> None:
    digits = load("digits")
    train, test = np.bincount(digits.train.labels), np.bincount(digits.test.labels)
    assert test.tolist() == ((train + test) // 5).tolist()


def test_digits_are_those_of_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="compares with scikit-learn's own copy")
    original = datasets.load_digits()
    digits = load("digits")
    test = every_nth_of_class(original.target, 5)
    for ours, rows in ((digits.train, ~test), (digits.test, test)):
        assert np.array_equal(ours.images[:, 0], original.images[rows])
        assert np.array_equal(ours.labels, original.target[rows])


def test_arrays_belong_to_the_caller() -> None:
    first = load("digits")
    first.train.images[:] = 0
    assert load("digits").train.images.any()
