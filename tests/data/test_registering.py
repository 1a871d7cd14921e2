from collections.abc import Iterator

import numpy as np
import pytest

from headway.data import DATASETS, Dataset, Progress, Split, load, register_dataset, unregister_dataset
from headway.data.catalogue import fingerprint
from headway.errors import DataError

NAMES = ("circle", "square", "triangle")


def load_shapes(data_dir: object, download: bool, progress: Progress | None) -> Dataset:
    """Nine images of three classes; the arguments go into the note."""
    split = Split(np.zeros((9, 1, 4, 5), dtype=np.uint8), np.arange(9) % 3)
    return Dataset("shapes", split, split, NAMES, note=f"{data_dir} {download}")


@pytest.fixture
def _shapes() -> Iterator[None]:
    register_dataset("shapes", load_shapes, classes=3, shape=(1, 4, 5))
    yield
    unregister_dataset("shapes")


@pytest.mark.usefixtures("_shapes")
def test_a_registered_dataset_is_loaded_by_name() -> None:
    shapes = load("shapes", "folder", download=False)
    assert shapes.note == "folder False"
    assert shapes.fingerprint == fingerprint(NAMES, [shapes.train, shapes.test])
    assert (DATASETS["shapes"].classes, DATASETS["shapes"].shape) == (3, (1, 4, 5))
    assert tuple(DATASETS)[-1] == "shapes"


@pytest.mark.usefixtures("_shapes")
def test_a_name_has_one_dataset() -> None:
    for name in ("shapes", "digits"):
        with pytest.raises(DataError, match=name):
            register_dataset(name, load_shapes, classes=3, shape=(1, 4, 5))


@pytest.mark.usefixtures("_shapes")
def test_an_unknown_name_lists_the_registered_ones_too() -> None:
    for use in (load, unregister_dataset):
        with pytest.raises(DataError, match=r"cifar10, shapes, got 'shape'; did you mean shapes\?"):
            use("shape")


@pytest.mark.parametrize(("classes", "shape"), [(4, (1, 4, 5)), (3, (3, 4, 5))])
def test_a_loader_must_return_what_was_registered(classes: int, shape: tuple[int, ...]) -> None:
    register_dataset("shapes", load_shapes, classes, shape)
    try:
        with pytest.raises(DataError, match="got 3 of shape") as caught:
            load("shapes")
        assert f"expected {classes} classes of shape {shape}" in str(caught.value)
    finally:
        unregister_dataset("shapes")


def test_one_class_is_too_few() -> None:
    with pytest.raises(DataError, match="got 1"):
        register_dataset("blank", load_shapes, classes=1, shape=(1, 4, 5))
    assert "blank" not in DATASETS
