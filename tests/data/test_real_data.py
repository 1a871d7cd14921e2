"""The real datasets, where there are any: in $HEADWAY_DATA, or installed by the system."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headway.data import Dataset, load, loading
from headway.data.catalogue import CATALOGUE
from headway.errors import DataError


@pytest.fixture
def real(real_data: str | None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Dataset]:
    monkeypatch.setattr(loading, "CATALOGUE", CATALOGUE)

    def read(name: str) -> Dataset:
        try:
            return load(name, real_data, download=False)
        except DataError as error:
            if "Downloading was not allowed" not in str(error):
                raise
            pytest.skip(f"set $HEADWAY_DATA to a directory with the official files of {name}")

    return read


def check(dataset: Dataset) -> None:
    spec = CATALOGUE[dataset.name]
    assert (len(dataset.train), len(dataset.test)) == spec.counts
    assert dataset.image_shape == spec.shape
    assert set(np.unique(dataset.train.labels)) == set(range(10))
    assert Path(dataset.source).exists()


def test_mnist(real: Callable[[str], Dataset]) -> None:
    mnist = real("mnist")
    check(mnist)
    assert mnist.note == ""
    assert mnist.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist.test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert mnist.train.floats().mean() == pytest.approx(0.1307, abs=1e-4)
    assert mnist.fingerprint == "35baa7e14e49f63fea2b50758178cfb0e2b70cc991b87b1db7bbc96b932a9971"


def test_fashion_mnist(real: Callable[[str], Dataset]) -> None:
    fashion = real("fashion-mnist")
    check(fashion)
    assert fashion.note == ""
    assert fashion.class_names[fashion.train.labels[0]] == "Ankle boot"
    assert np.bincount(fashion.train.labels).tolist() == [6000] * 10
    assert fashion.train.floats().mean() == pytest.approx(0.2860, abs=1e-4)


@pytest.mark.slow
def test_cifar10(real: Callable[[str], Dataset]) -> None:
    cifar = real("cifar10")
    check(cifar)
    assert np.bincount(cifar.train.labels).tolist() == [5000] * 10
    assert np.bincount(cifar.test.labels).tolist() == [1000] * 10
    means = cifar.train.floats().mean(axis=(0, 2, 3))
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=2e-3)  # also of copies with lossy compression
    assert cifar.note == "" or cifar.note.startswith("checksums differ from the official ones")
