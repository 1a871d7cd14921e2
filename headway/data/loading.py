"""`load`: the datasets by name. Official ones are found or downloaded, read, and compared with the published files."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from headway.data.catalogue import CATALOGUE, Dataset, Spec
from headway.data.cifar import read_cifar
from headway.data.files import (
    VARIABLE,
    DataDir,
    FilesFound,
    Progress,
    SearchPath,
    describe,
    fetch,
    find,
    matches,
    present,
    progress_display,
    read_bounded,
    roots,
    search_paths,
)
from headway.data.idx import content_limit, load_digits, read_mnist
from headway.errors import DataError, MissingExtraError, did_you_mean

Loader = Callable[[DataDir, bool, Progress | None], Dataset]
"""Called with `data_dir`, `download` and `progress`, as `load` got them."""


@dataclass(frozen=True)
class DatasetEntry:
    """What is known of a registered dataset before it is loaded.

    Attributes:
        loader: reads it.
        classes: how many classes it has.
        shape: channels, height and width of an image.
    """

    loader: Loader
    classes: int
    shape: tuple[int, ...]


_ENTRIES: dict[str, DatasetEntry] = {}
DATASETS: Mapping[str, DatasetEntry] = MappingProxyType(_ENTRIES)
"""The datasets that `load` knows, by name, in the order in which they were registered."""


def register_dataset(name: str, loader: Loader, classes: int, shape: tuple[int, ...]) -> None:
    """Let `load(name)`, and with it `headway run controlled --dataset name`, find a dataset.

        def load_shapes(data_dir, download, progress):
            train, test = draw_shapes(6000), draw_shapes(1000)
            return Dataset("shapes", train, test, class_names=("circle", "square", "triangle"))

        register_dataset("shapes", load_shapes, classes=3, shape=(1, 16, 16))

    Args:
        name: the name to load it by.
        loader: called with `data_dir`, `download` and `progress`, as `load` got them; returns the dataset.
        classes: how many classes it has; any number from 2.
        shape: channels, height and width of an image.

    Raises:
        DataError: the name is taken (`unregister_dataset` frees it), or there are fewer than two classes.
    """
    if name in _ENTRIES:
        raise DataError(
            f"expected a name without a dataset, got {name!r}, which has one; "
            f"call unregister_dataset({name!r}) first to replace it"
        )
    if classes < 2:
        raise DataError(f"dataset {name}: expected at least 2 classes, got {classes}")
    _ENTRIES[name] = DatasetEntry(loader, classes, tuple(shape))


def unregister_dataset(name: str) -> None:
    """Remove a dataset from the names that `load` knows.

    Raises:
        DataError: there is none of this name; the message lists those that there are.
    """
    _entry(name)
    del _ENTRIES[name]


def load(
    name: str = "digits",
    data_dir: DataDir = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load a dataset by name.

    `digits` is part of the package. The files of the other official ones are looked for in `data_dir`, in
    $HEADWAY_DATA, in the user's cache directory and where system packages put them. If they are nowhere, they are
    downloaded into the first of those directories that is set. A well-formed copy is accepted even if it is not the
    official one, and the dataset's `note` says so.

    Args:
        name: one of DATASETS.
        data_dir: a directory that has (or gets) a folder named like the dataset.
        download: whether to download what is not found.
        progress: called as a download goes on; None shows it on stderr.

    Raises:
        DataError: an unknown name, files that are damaged, files that are nowhere to be had, or a registered loader
            that returned something else than was registered.
    """
    entry = _entry(name)
    dataset = entry.loader(data_dir, download, progress)
    got = (dataset.classes, dataset.image_shape)
    if got != (entry.classes, entry.shape):
        raise DataError(
            f"dataset {name}: expected {entry.classes} classes of shape {entry.shape}, as registered, "
            f"got {got[0]} of shape {got[1]}"
        )
    return dataset


def _entry(name: str) -> DatasetEntry:
    if name not in _ENTRIES:
        hint = did_you_mean(name, DATASETS)
        raise DataError(f"expected one of the datasets {', '.join(DATASETS)}, got {name!r}{hint}")
    return _ENTRIES[name]


def _load_official(name: str, data_dir: DataDir, download: bool, progress: Progress | None) -> Dataset:
    spec = CATALOGUE[name]
    paths = search_paths(spec, data_dir)
    found = find(spec, paths)
    if found is None:
        target = roots(data_dir)[0].folder / spec.name
        if not download:
            raise _missing(spec, paths, target, "Downloading was not allowed.")
        found = _download(spec, paths, target, progress)
    (train, test), differing = read_cifar(spec, found) if spec.archive else read_mnist(spec, found.files)
    note = f"checksums differ from the official ones: {', '.join(differing)}" if differing else ""
    counts = len(train), len(test)
    if differing and counts != spec.counts:
        note += "; {} training and {} test images instead of {} and {}".format(*counts, *spec.counts)
    return Dataset(spec.name, train, test, spec.class_names, source=str(found.source), note=note)


register_dataset("digits", lambda data_dir, download, progress: load_digits(), classes=10, shape=(1, 8, 8))
for _spec in CATALOGUE.values():
    register_dataset(_spec.name, functools.partial(_load_official, _spec.name), len(_spec.class_names), _spec.shape)


def _download(spec: Spec, paths: list[SearchPath], folder: Path, progress: Progress | None) -> FilesFound:
    there = present(spec, folder)
    _check_official(spec, folder, there)
    wanted = [item for item in spec.downloads if item.name.removesuffix(".gz") not in there]
    try:
        with progress_display() if progress is None else contextlib.nullcontext(progress) as display:
            for item in wanted:
                fetch(item, folder, display)
    except (DataError, MissingExtraError) as error:
        raise _missing(spec, paths, folder, f"The download failed: {error}") from error
    found = find(spec, [SearchPath(folder, "download")])
    if found is None:
        raise DataError(f"{folder}: expected the files just downloaded, got none; was the folder removed?")
    return found


def _check_official(spec: Spec, folder: Path, there: dict[str, Path]) -> None:
    """Refuse to add official files to a folder with others: images would get the labels of other images."""
    if spec.archive:
        return  # the archive has everything, so nothing is mixed
    for name, path in there.items():
        if not matches(read_bounded(path, content_limit(spec, name)), spec.contents[name]):
            missing = ", ".join(name for name in spec.contents if name not in there)
            raise DataError(
                f"{path}: expected the official file, because {missing} would be downloaded beside it, got "
                f"another; put what belongs to it into {folder}, or remove it, or choose another data_dir"
            )


def _missing(spec: Spec, paths: list[SearchPath], target: Path, why: str) -> DataError:
    names = ", ".join(item.name for item in spec.downloads)
    sources = "\n  ".join(item.mirrors[0] + item.name for item in spec.downloads)
    unset = "" if os.environ.get(VARIABLE) else f"\n  (${VARIABLE} is not set)"
    looked = "\n  ".join(describe(spec, path) for path in paths)
    hint = f"\nOr, {spec.hint}." if spec.hint else ""
    return DataError(
        f"dataset {spec.name}: expected the files {names}, got no complete set in\n  {looked}{unset}\n{why}\n"
        f"Put the files into {target}, or into a folder {spec.name} in a directory given by data_dir (--data-dir) or "
        f"${VARIABLE}. They are published at\n  {sources}{hint}"
    )
