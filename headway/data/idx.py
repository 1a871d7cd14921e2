"""The IDX format, and the datasets that come in it: MNIST, Fashion-MNIST and the embedded digits.

An IDX file is two zero bytes, a type code (8: unsigned byte), the number of dimensions, each dimension as a
big-endian 32-bit number, then the values.

The embedded digits are scikit-learn's, 8x8. Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten
Digits, UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, licence CC BY 4.0. The 1,797 images here
are its test set, which is what `sklearn.datasets.load_digits` gives (scikit-learn: BSD-3-Clause), in the same order;
the only change is the file format (IDX, gzipped).
"""

from __future__ import annotations

import importlib.resources
import math
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.data.catalogue import DIGITS, Dataset, Spec, Split
from headway.data.files import bad_file, matches, read_bounded

COUNT, SIDE, PIXEL_MAX = 1797, 8, 16
TEST_EVERY = 5


def idx_size(*shape: int) -> int:
    """Count the bytes of an IDX file of unsigned bytes of this shape."""
    return 4 + 4 * len(shape) + math.prod(shape)


def parse_idx(data: bytes, dimensions: int, where: Path | str) -> NDArray[np.uint8]:
    """Parse an IDX file of unsigned bytes into an array of that many dimensions."""
    magic = bytes([0, 0, 8, dimensions])
    if data[:4] != magic:
        raise bad_file(where, f"the magic number 0x{magic.hex()}", f"0x{data[:4].hex() or '(empty)'}")
    header = 4 + 4 * dimensions
    if len(data) < header:
        raise bad_file(where, f"a header of {header} bytes", f"{len(data)} bytes")
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    expected = header + math.prod(shape)
    if len(data) != expected:
        raise bad_file(where, f"{expected} bytes for the shape {shape}", f"{len(data)} bytes")
    try:
        return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape)
    except ValueError as error:  # a dimension of 0 lets the others be too large for any array
        raise bad_file(where, "the dimensions of an array", str(shape)) from error


def parse_images(data: bytes, size: tuple[int, int], most: int, where: Path | str) -> NDArray[np.uint8]:
    """Parse grey images of height and width `size`, from 1 to `most`, into [images, 1, height, width]."""
    images = parse_idx(data, 3, where)
    if images.shape[1:] != size:
        raise bad_file(where, f"images of {size[0]}x{size[1]}", "{}x{}".format(*images.shape[1:]))
    check_count(len(images), most, where)
    return images[:, np.newaxis].copy()


def parse_labels(data: bytes, classes: int, most: int, where: Path | str) -> NDArray[np.int64]:
    """Parse from 1 to `most` labels, each below `classes`, into [labels]."""
    labels = parse_idx(data, 1, where).astype(np.int64)
    check_count(len(labels), most, where)
    check_labels(labels, classes, where)
    return labels


def check_count(count: int, most: int, where: Path | str) -> None:
    """Refuse an empty file, and one that holds more than the official one."""
    if not 1 <= count <= most:
        raise bad_file(where, f"from 1 to {most} entries", str(count))


def check_labels(labels: NDArray[np.int64], classes: int, where: Path | str) -> None:
    """Refuse labels that name no class."""
    if labels.min() < 0 or labels.max() >= classes:
        outside = labels[(labels < 0) | (labels >= classes)][0]
        raise bad_file(where, f"labels from 0 to {classes - 1}", f"a label {outside}")


def content_limit(spec: Spec, name: str) -> int:
    """Count the bytes of the official file of this name once unpacked: no copy may be longer."""
    count = spec.counts[0] if name.startswith("train") else spec.counts[1]
    return idx_size(count, *spec.shape[1:]) if "images" in name else idx_size(count)


def read_mnist(spec: Spec, files: Mapping[str, Path]) -> tuple[list[Split], list[str]]:
    """Read the training and the test split from four files; also gives the names of those that are not the official."""
    splits: list[Split] = []
    differing: list[str] = []
    for prefix, most in zip(("train", "t10k"), spec.counts, strict=True):
        names = [f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"]
        image_data, label_data = (read_bounded(files[name], content_limit(spec, name)) for name in names)
        image_file, label_file = (files[name] for name in names)
        images = parse_images(image_data, (spec.shape[1], spec.shape[2]), most, image_file)
        labels = parse_labels(label_data, len(spec.class_names), most, label_file)
        if len(images) != len(labels):
            raise bad_file(
                label_file, f"{len(images)} labels, one for each image in {image_file.name}", str(len(labels))
            )
        splits.append(Split(images, labels))
        for name, data in zip(names, (image_data, label_data), strict=True):
            if not matches(data, spec.contents[name]):
                differing.append(name)
    return splits, differing


def load_digits() -> Dataset:
    """Load the digits: 1,442 training and 355 test images of shape [1, 8, 8] with pixels from 0 to 16.

    The source has no split of its own. Every fifth image of each class is for testing: the same images
    always, and each class in the same proportion.
    """
    image_file, label_file = "digits-images-idx3-ubyte.gz", "digits-labels-idx1-ubyte.gz"
    image_data = _embedded(image_file, idx_size(COUNT, SIDE, SIDE))
    images = parse_images(image_data, (SIDE, SIDE), COUNT, image_file)
    labels = parse_labels(_embedded(label_file, idx_size(COUNT)), len(DIGITS), COUNT, label_file)
    test = every_nth_of_class(labels, TEST_EVERY)
    splits = [Split(images[rows], labels[rows], PIXEL_MAX) for rows in (~test, test)]
    return Dataset("digits", splits[0], splits[1], DIGITS, source="embedded")


def every_nth_of_class(labels: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
    """Mark, in an array of shape [labels], the n-th, 2n-th, ... occurrence of each label."""
    marked = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        marked[np.flatnonzero(labels == label)[n - 1 :: n]] = True
    return marked


def _embedded(name: str, limit: int) -> bytes:
    resource = importlib.resources.files("headway.data") / "embedded" / name
    with importlib.resources.as_file(resource) as path:
        return read_bounded(path, limit)
