"""The IDX format of MNIST and its relatives.

Two zero bytes, a type code (8: unsigned byte), the number of dimensions, each dimension as a big-endian
32-bit number, then the values.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.data.files import bad_file


def idx_size(*shape: int) -> int:
    """Count the bytes of an IDX file of unsigned bytes of this shape."""
    return 4 + 4 * len(shape) + math.prod(shape)


def parse_idx(data: bytes, dimensions: int, where: Path | str) -> NDArray[np.uint8]:
    """Parse an IDX file of unsigned bytes into an array of that many dimensions.

    Raises:
        DataError: wrong magic number, or a length other than the header promises.
    """
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
