"""The datasets of the controlled study by name: those of `headway.data`, and those that users add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.data import DATASETS, Dataset, Split, load
from headway.data.dataset import fingerprint
from headway.errors import DataError, did_you_mean
from headway.registry import Registry

Load: TypeAlias = Callable[[Path | None], Dataset]
"""Loads a dataset; it is told where datasets are looked for first (`--data-dir`)."""
OWN: Registry[Load] = Registry("dataset", DataError)


def register_dataset(name: str) -> Callable[[Load], Load]:
    """Add a dataset: a function from the data folder (or None) to a `headway.data.Dataset` of any number of classes.

    Args:
        name: what `headway run controlled --dataset` calls it; letters, digits, dashes and underscores.

    Raises:
        DataError: the name is taken or not valid.
    """
    if name in DATASETS:
        raise DataError(f"expected a new name for a dataset, got {name!r} twice")
    return OWN.register(name)


def dataset_names() -> tuple[str, ...]:
    """The names of all datasets."""
    return (*DATASETS, *OWN.names())


def image_dataset(
    name: str,
    train: tuple[NDArray[np.uint8], NDArray[np.int64]],
    test: tuple[NDArray[np.uint8], NDArray[np.int64]],
    class_names: Sequence[str],
    source: str = "",
) -> Dataset:
    """A dataset of arrays, with its fingerprint.

    Args:
        name: what it is called.
        train: images [N, channels, height, width] from 0 to 255, and labels [N] from 0.
        test: the same for the test.
        class_names: what each label stands for.
        source: where it comes from.

    Raises:
        DataError: the arrays do not fit each other.
    """
    splits = []
    for what, (images, labels) in (("train", train), ("test", test)):
        if images.ndim != 4 or images.dtype != np.uint8 or labels.shape != images.shape[:1]:
            raise DataError(
                f"{what}: expected uint8 images [N, channels, height, width] and labels [N], got {images.dtype} "
                f"{list(images.shape)} and {list(labels.shape)}"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(class_names):
            raise DataError(f"{what}: expected labels from 0 to {len(class_names) - 1}, got others")
        splits.append(Split(images, labels.astype(np.int64)))
    return Dataset(name, splits[0], splits[1], tuple(class_names), fingerprint(class_names, splits), source)


def load_dataset(name: str, data_dir: Path | None = None, download: bool = True) -> Dataset:
    """Load a dataset by name.

    Raises:
        DataError: an unknown name, or data that cannot be had.
    """
    if name in OWN.names():
        return OWN.find(name)(data_dir)
    if name not in DATASETS:
        names = dataset_names()
        raise DataError(f"expected a dataset out of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}")
    return load(name, data_dir, download=download)


@lru_cache(maxsize=1)
def loaded_once(name: str, data_dir: Path | None) -> Dataset:
    """A dataset, loaded once for all runs of a process that follow each other."""
    return load_dataset(name, data_dir)
