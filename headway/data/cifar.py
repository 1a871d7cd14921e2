"""CIFAR-10: five training batches and a test batch, pickled dictionaries in a folder or in the archive."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.data.archive import iter_members
from headway.data.catalogue import Spec
from headway.data.dataset import Split
from headway.data.files import bad_file, is_file, matches, read_bounded
from headway.data.idx import check_count, check_labels
from headway.data.places import Found
from headway.data.safe_pickle import loads

INNER_FOLDER = "cifar-10-batches-py"
META = "batches.meta"
# An official batch is 31 MB. Python 3 writes bytes at protocol 2 as text, up to twice as long.
BATCH_LIMIT = 64 << 20
META_LIMIT = 64 << 10


def read_cifar(spec: Spec, found: Found) -> tuple[list[Split], list[str]]:
    """Read the training and the test split.

    Returns:
        The two splits, and the names of the batches whose contents are not the official ones.
    """
    batches: dict[str, Split] = {}
    differing = []
    for name, data, where in _contents(spec, found):
        if name == META:
            _check_meta(data, spec.class_names, where)
            continue
        batches[name] = parse_batch(data, spec, where)
        if not matches(data, spec.contents[name]):
            differing.append(name)
    missing = [name for name in spec.contents if name not in batches]
    if missing:
        got = f"only {', '.join(batches)}" if batches else "none of the batches"
        raise bad_file(found.source, f"{', '.join(missing)} in it", got)
    *training, test = (batches.pop(name) for name in spec.contents)
    return [_joined(training), _joined([test])], sorted(differing)


def parse_batch(data: bytes, spec: Spec, where: Path | str) -> Split:
    """Parse a batch: `data`, a uint8 matrix with a row of red, green and blue planes each, and `labels`."""
    batch = _dictionary(data, where)
    rows, labels = batch.get("data"), batch.get("labels")
    if not isinstance(rows, np.ndarray) or rows.shape[1] != math.prod(spec.shape):
        got = "x".join(map(str, rows.shape)) if isinstance(rows, np.ndarray) else type(rows).__name__
        raise bad_file(where, f"data with {math.prod(spec.shape)} values for each image", got)
    check_count(len(rows), spec.counts[1], where)
    if not isinstance(labels, list) or len(labels) != len(rows):
        got = f"{len(labels)}" if isinstance(labels, list) else type(labels).__name__
        raise bad_file(where, f"a list of {len(rows)} labels, one for each image", got)
    return Split(rows.reshape(-1, *spec.shape), _as_labels(labels, len(spec.class_names), where))


def _joined(batches: list[Split]) -> Split:
    """Put batches, whose images lie in read-only memory, one after the other into arrays of their own."""
    images = np.concatenate([batch.images for batch in batches])
    return Split(images, np.concatenate([batch.labels for batch in batches]))


def _as_labels(labels: list[object], classes: int, where: Path | str) -> NDArray[np.int64]:
    # Plain int alone, and no numbers that int64 cannot hold.
    if not all(type(label) is int and abs(label) < 1 << 31 for label in labels):
        raise bad_file(where, f"labels from 0 to {classes - 1}", "something else among them")
    array = np.array(labels, dtype=np.int64)
    check_labels(array, classes, where)
    return array


def _check_meta(data: bytes, class_names: tuple[str, ...], where: Path | str) -> None:
    """Refuse a copy whose labels stand for other classes."""
    names = _dictionary(data, where).get("label_names")
    texts = [_text(name) for name in names] if isinstance(names, list) else []
    if texts != list(class_names):
        raise bad_file(where, f"the label names {', '.join(class_names)}", ", ".join(texts)[:200] or "none")


def _dictionary(data: bytes, where: Path | str) -> dict[str, object]:
    """Read a pickled dictionary; its keys are bytes or text, depending on which Python wrote it."""
    value = loads(data, where)
    if not isinstance(value, dict):
        raise bad_file(where, "a dictionary", type(value).__name__)
    return {_text(key): item for key, item in value.items()}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else f"a {type(value).__name__}"


def _contents(spec: Spec, found: Found) -> Iterator[tuple[str, bytes, Path | str]]:
    """Yield name, bytes and whereabouts of each batch, and of the list of classes if there is one."""
    if found.files:
        for name, path in found.files.items():
            yield name, read_bounded(path, BATCH_LIMIT), path
        meta = found.source / META
        if is_file(meta):
            yield META, read_bounded(meta, META_LIMIT), meta
        return
    members = [f"{INNER_FOLDER}/{name}" for name in (*spec.contents, META)]
    total = BATCH_LIMIT * (len(members) + 1)
    for member, data in iter_members(found.source, members, BATCH_LIMIT, total):
        yield member.rpartition("/")[2], data, f"{found.source}: {member}"
