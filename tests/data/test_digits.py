import numpy as np
import pytest

from headway.data import load
from headway.data.digits import every_nth_of_class


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
