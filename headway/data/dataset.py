"""What `load` returns: two splits of images and labels, and where they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Split:
    """The images of one split and their labels.

    Attributes:
        images: uint8 array of shape [images, channels, height, width].
        labels: int64 array of shape [images], each an index into the dataset's class names.
        pixel_max: the value of a fully lit pixel (16 for digits, 255 for the others).
    """

    images: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    pixel_max: int = 255

    def __len__(self) -> int:
        """Count the images."""
        return len(self.labels)

    def floats(self) -> NDArray[np.float32]:
        """Give the images as float32 from 0 to 1, of shape [images, channels, height, width]."""
        return self.images.astype(np.float32) / np.float32(self.pixel_max)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset with its provenance.

    Attributes:
        name: the name it was loaded by.
        train: the images to learn from.
        test: the images to test on.
        class_names: what each label stands for.
        fingerprint: sha256 of the class names, images and labels, however the files were packed; computed if empty.
        source: "embedded", or the folder or archive that was read.
        note: empty for the official data, otherwise in what it differs; show it beside every result.
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    fingerprint: str = ""
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", fingerprint(self.class_names, [self.train, self.test]))

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height and width of one image."""
        return self.train.images.shape[1:]

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)


def fingerprint(class_names: Sequence[str], splits: Sequence[Split]) -> str:
    """Hash class names, shapes, images and labels to 64 hexadecimal digits, the same on every machine."""
    digest = hashlib.sha256("\0".join(class_names).encode())
    for split in splits:
        digest.update(f"{split.images.shape} {split.pixel_max}".encode())
        digest.update(np.ascontiguousarray(split.images).data)
        digest.update(split.labels.astype("<i8").data)
    return digest.hexdigest()
