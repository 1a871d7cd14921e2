"""Where a dataset's files may be, and which of the places has them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.data.catalogue import Spec
from headway.data.files import is_file

VARIABLE = "HEADWAY_DATA"
PLATFORMS = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": ("", "~/Library/Caches")}


@dataclass(frozen=True)
class Place:
    """A folder to look in, and how it came to be on the list."""

    folder: Path
    origin: str


@dataclass(frozen=True)
class Found:
    """A complete copy of a dataset.

    Attributes:
        source: the folder or archive that holds it.
        files: the path of each of the contents, empty if source is an archive.
    """

    source: Path
    files: Mapping[str, Path]


def cache_dir() -> Path:
    """Give the user's cache directory for headway, by the custom of the platform; nothing is created."""
    variable, custom = PLATFORMS.get(sys.platform, ("XDG_CACHE_HOME", "~/.cache"))
    given = Path(os.environ.get(variable, ""))
    # The XDG specification says to ignore a path that is not absolute.
    return (given if given.is_absolute() else _expanded(custom)) / "headway"


def _expanded(path: str | os.PathLike[str]) -> Path:
    """Replace a leading ~ by the home directory, if there is one."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def roots(data_dir: str | os.PathLike[str] | None) -> list[Place]:
    """List the data directories in the order in which they are searched: argument, environment, cache."""
    places = []
    if data_dir is not None:
        places.append(Place(_expanded(data_dir), "data_dir"))
    if os.environ.get(VARIABLE):
        places.append(Place(_expanded(os.environ[VARIABLE]), f"${VARIABLE}"))
    places.append(Place(cache_dir(), "cache"))
    return places


def candidates(spec: Spec, data_dir: str | os.PathLike[str] | None) -> list[Place]:
    """List every folder that may hold the dataset, in the order in which they are searched."""
    within = [Place(root.folder / folder, root.origin) for root in roots(data_dir) for folder in spec.folders]
    return within + [Place(Path(folder), "system package") for folder in spec.system_folders]


def present(spec: Spec, folder: Path) -> dict[str, Path]:
    """Map each of the dataset's contents that a folder holds, gzipped or not, to its path."""
    files = {}
    for name in spec.contents:
        for path in (folder / f"{name}.gz", folder / name):
            if is_file(path):
                files[name] = path
                break
    return files


def find(spec: Spec, places: list[Place]) -> Found | None:
    """Give the first complete copy among the places. A folder with only some of the files is passed over."""
    for place in places:
        files = present(spec, place.folder)
        if len(files) == len(spec.contents):
            return Found(place.folder, files)
        if spec.archive and is_file(place.folder / spec.archive):
            return Found(place.folder / spec.archive, {})
    return None


def describe(spec: Spec, place: Place) -> str:
    """Say in one line what was found in a place that has no complete copy."""
    missing = [name for name in spec.contents if name not in present(spec, place.folder)]
    if len(missing) == len(spec.contents):
        state = "none of the files"
    else:
        state = f"only some of the files, {', '.join(missing)} missing"
    return f"{place.folder} ({place.origin}): {state}"
