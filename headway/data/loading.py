"""`load`: find a dataset or download it, read it, and say in what it differs from the official one."""

from __future__ import annotations

import os
from pathlib import Path

from headway.data.catalogue import CATALOGUE, Spec
from headway.data.cifar import read_cifar
from headway.data.dataset import Dataset, Split, fingerprint
from headway.data.digits import load_digits
from headway.data.download import fetch
from headway.data.files import matches, read_bounded
from headway.data.mnist import content_limit, read_mnist
from headway.data.places import VARIABLE, Found, Place, candidates, describe, find, present, roots
from headway.data.progress import Progress, progress_display
from headway.errors import DataError, did_you_mean

DATASETS = ("digits", *CATALOGUE)
"""The names that `load` knows."""


def load(
    name: str = "digits",
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load a dataset by name.

    `digits` is part of the package. The files of the others are looked for in `data_dir`, in $HEADWAY_DATA,
    in the user's cache directory and where system packages put them. If they are nowhere, they are downloaded
    into the first of those directories that is set. A well-formed copy is accepted even if it is not the
    official one, and the dataset's `note` says so.

    Args:
        name: one of DATASETS.
        data_dir: a directory that has (or gets) a folder named like the dataset.
        download: whether to download what is not found.
        progress: called as a download goes on; None shows it on stderr.

    Raises:
        DataError: an unknown name, files that are damaged, or files that are nowhere to be had.
    """
    if name == "digits":
        return load_digits()
    if name not in CATALOGUE:
        hint = did_you_mean(name, DATASETS)
        raise DataError(f"expected one of the datasets {', '.join(DATASETS)}, got {name!r}{hint}")
    spec = CATALOGUE[name]
    places = candidates(spec, data_dir)
    found = find(spec, places)
    if found is None and not download:
        raise _missing(spec, places, _target(spec, data_dir), "Downloading was not allowed.")
    if found is None:
        found = _download(spec, places, _target(spec, data_dir), progress)
    return _read(spec, found)


def _target(spec: Spec, data_dir: str | os.PathLike[str] | None) -> Path:
    """Give the folder that downloads go to."""
    return roots(data_dir)[0].folder / spec.name


def _read(spec: Spec, found: Found) -> Dataset:
    splits, differing = read_cifar(spec, found) if spec.archive else read_mnist(spec, found.files)
    return Dataset(
        spec.name,
        splits[0],
        splits[1],
        spec.class_names,
        fingerprint(spec.class_names, splits),
        source=str(found.source),
        note=_note(spec, splits, differing),
    )


def _note(spec: Spec, splits: list[Split], differing: list[str]) -> str:
    """Say in what a copy differs from the official dataset; nothing if it does not."""
    if not differing:
        return ""
    note = f"checksums differ from the official ones: {', '.join(differing)}"
    counts = tuple(len(split) for split in splits)
    if counts != spec.counts:
        note += "; {} training and {} test images instead of {} and {}".format(*counts, *spec.counts)
    return note


def _download(spec: Spec, places: list[Place], folder: Path, progress: Progress | None) -> Found:
    there = present(spec, folder)
    _check_official(spec, folder, there)
    wanted = [item for item in spec.downloads if item.name.removesuffix(".gz") not in there]
    try:
        if progress is not None:
            for item in wanted:
                fetch(item, folder, progress)
        else:
            with progress_display() as display:
                for item in wanted:
                    fetch(item, folder, display)
    except DataError as error:
        raise _missing(spec, places, folder, f"The download failed: {error}") from error
    found = find(spec, [Place(folder, "download")])
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


def _missing(spec: Spec, places: list[Place], target: Path, why: str) -> DataError:
    names = ", ".join(item.name for item in spec.downloads)
    sources = "\n  ".join(item.mirrors[0] + item.name for item in spec.downloads)
    unset = "" if os.environ.get(VARIABLE) else f"\n  (${VARIABLE} is not set)"
    looked = "\n  ".join(describe(spec, place) for place in places)
    hint = f"\nOr, {spec.hint}." if spec.hint else ""
    return DataError(
        f"dataset {spec.name}: expected the files {names}, got no complete set in\n  {looked}{unset}\n{why}\n"
        f"Put the files into {target}, or into a folder {spec.name} in a directory given by data_dir (--data-dir) or "
        f"${VARIABLE}. They are published at\n  {sources}{hint}"
    )
