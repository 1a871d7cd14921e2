"""The embedded dataset: scikit-learn's 8x8 digits.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, licence CC BY 4.0. The 1,797 images here are its test set, which is what
`sklearn.datasets.load_digits` gives (scikit-learn: BSD-3-Clause), in the same order; the only change is the
file format (IDX, gzipped).
"""

from __future__ import annotations

import importlib.resources

import numpy as np
from numpy.typing import NDArray

from headway.data.dataset import Dataset, Split, fingerprint
from headway.data.files import read_bounded
from headway.data.idx import idx_size, parse_images, parse_labels

COUNT, SIDE, CLASSES, PIXEL_MAX = 1797, 8, 10, 16
TEST_EVERY = 5


def load_digits() -> Dataset:
    """Load the digits: 1,442 training and 355 test images of shape [1, 8, 8] with pixels from 0 to 16.

    The source has no split of its own. Every fifth image of each class is for testing: the same images
    always, and each class in the same proportion.
    """
    image_file, label_file = "digits-images-idx3-ubyte.gz", "digits-labels-idx1-ubyte.gz"
    image_data = _embedded(image_file, idx_size(COUNT, SIDE, SIDE))
    images = parse_images(image_data, (SIDE, SIDE), COUNT, image_file)
    labels = parse_labels(_embedded(label_file, idx_size(COUNT)), CLASSES, COUNT, label_file)
    test = every_nth_of_class(labels, TEST_EVERY)
    splits = [Split(images[rows], labels[rows], PIXEL_MAX) for rows in (~test, test)]
    names = tuple(str(digit) for digit in range(CLASSES))
    return Dataset("digits", splits[0], splits[1], names, fingerprint(names, splits), source="embedded")


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
