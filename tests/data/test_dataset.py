import dataclasses

import numpy as np
import pytest

from headway.data import Dataset, Split
from headway.data.catalogue import fingerprint


def split(count: int = 3, pixel_max: int = 255) -> Split:
    images = np.arange(count * 12, dtype=np.uint8).reshape(count, 3, 2, 2)
    return Split(images, np.arange(count, dtype=np.int64), pixel_max)


def test_a_split_counts_its_images_and_scales_them_to_one() -> None:
    sixteen = Split(np.array([[[[0, 4], [8, 16]]]], dtype=np.uint8), np.array([7]), pixel_max=16)
    assert len(sixteen) == 1
    assert sixteen.floats().dtype == np.float32
    assert sixteen.floats().tolist() == [[[[0.0, 0.25], [0.5, 1.0]]]]


def test_the_image_shape_and_the_number_of_classes_are_at_hand() -> None:
    dataset = Dataset("x", split(), split(2), ("a", "b", "c"), "f", "here")
    assert dataset.image_shape == (3, 2, 2)
    assert dataset.classes == 3
    assert dataset.note == ""


def test_a_dataset_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        split().pixel_max = 3  # type: ignore[misc]


def test_the_fingerprint_is_the_same_for_the_same_content() -> None:
    first, second = split(), split()
    second = Split(np.asfortranarray(second.images), second.labels.astype(">i8"), second.pixel_max)
    assert fingerprint("ab", [first, first]) == fingerprint("ab", [second, second])


def test_the_fingerprint_changes_with_every_part() -> None:
    pixels, labels = split(), split()
    pixels.images[0, 0, 0, 0] += 1
    labels.labels[0] += 1
    reshaped = Split(split().images.reshape(3, 3, 4, 1), split().labels)
    parts = [split(), pixels, labels, reshaped, split(2), split(pixel_max=16)]
    prints = {fingerprint("ab", [part]) for part in parts} | {fingerprint("ac", [split()])}
    assert len(prints) == len(parts) + 1
    assert all(len(value) == 64 for value in prints)
