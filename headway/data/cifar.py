"""CIFAR-10: five training batches and a test batch, pickled dictionaries in a folder or in the archive.

Unpickling calls whatever a file names. The reader here knows five names, and each stands for a function of this
module, so that a batch can build dictionaries, lists, numbers, strings and matrices of bytes, and nothing else.
"""

from __future__ import annotations

import io
import math
import pickle
import tarfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headway.data.catalogue import Spec, Split
from headway.data.files import FilesFound, bad_file, is_file, matches, open_maybe_gzip, read_bounded
from headway.data.idx import check_count, check_labels

INNER_FOLDER = "cifar-10-batches-py"
META = "batches.meta"
# An official batch is 31 MB. Python 3 writes bytes at protocol 2 as text, up to twice as long.
BATCH_LIMIT = 64 << 20
META_LIMIT = 64 << 10
CHUNK = 1 << 20


def read_cifar(spec: Spec, found: FilesFound) -> tuple[list[Split], list[str]]:
    """Read the training and the test split."""
    batches: dict[str, Split] = {}
    differing = []
    for name, data, where in _contents(spec, found):
        if name == META:  # do the labels stand for the same classes?
            names = _dictionary(data, where).get("label_names")
            texts = [_text(each) for each in names] if isinstance(names, list) else []
            if texts != list(spec.class_names):
                got = ", ".join(texts)[:200] or "none"
                raise bad_file(where, f"the label names {', '.join(spec.class_names)}", got)
            continue
        batches[name] = parse_batch(data, spec, where)
        if not matches(data, spec.contents[name]):
            differing.append(name)
    missing = [name for name in spec.contents if name not in batches]
    if missing:
        got = f"only {', '.join(batches)}" if batches else "none of the batches"
        raise bad_file(found.source, f"{', '.join(missing)} in it", got)
    *training, test = (batches[name] for name in spec.contents)
    return [_joined(training), _joined([test])], sorted(differing)


def parse_batch(data: bytes, spec: Spec, where: Path | str) -> Split:
    """Parse a batch: `data`, a uint8 matrix with a row of red, green and blue planes each, and `labels`."""
    batch = _dictionary(data, where)
    rows, labels = batch.get("data"), batch.get("labels")
    rows = rows.values if isinstance(rows, _Matrix) else rows
    if not isinstance(rows, np.ndarray) or rows.shape[1] != math.prod(spec.shape):
        got = "x".join(map(str, rows.shape)) if isinstance(rows, np.ndarray) else type(rows).__name__
        raise bad_file(where, f"data with {math.prod(spec.shape)} values for each image", got)
    check_count(len(rows), spec.counts[1], where)
    if not isinstance(labels, list) or len(labels) != len(rows):
        got = f"{len(labels)}" if isinstance(labels, list) else type(labels).__name__
        raise bad_file(where, f"a list of {len(rows)} labels, one for each image", got)
    # Plain int alone, and no numbers that int64 cannot hold.
    if not all(type(label) is int and abs(label) < 1 << 31 for label in labels):
        raise bad_file(where, f"labels from 0 to {len(spec.class_names) - 1}", "something else among them")
    array = np.array(labels, dtype=np.int64)
    check_labels(array, len(spec.class_names), where)
    return Split(rows.reshape(-1, *spec.shape), array)


def _joined(batches: list[Split]) -> Split:
    """Put batches, whose images lie in read-only memory, one after the other into arrays of their own."""
    images = np.concatenate([batch.images for batch in batches])
    return Split(images, np.concatenate([batch.labels for batch in batches]))


def _dictionary(data: bytes, where: Path | str) -> dict[str, object]:
    """Read a pickled dictionary; its keys are bytes or text, depending on which Python wrote it."""
    value = unpickle(data, where)
    if not isinstance(value, dict):
        raise bad_file(where, "a dictionary", type(value).__name__)
    return {_text(key): item for key, item in value.items()}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else f"a {type(value).__name__}"


def _contents(spec: Spec, found: FilesFound) -> Iterator[tuple[str, bytes, Path | str]]:
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


def iter_members(path: Path, names: Collection[str], limit: int, total: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each regular file among `names`, in the archive's order.

    The archive is read in one pass and nothing is written to disk, so no name in it can lead outside a folder.
    """
    seen: set[str] = set()
    with open_maybe_gzip(path) as stream:
        bounded = _Bounded(stream, path, total)
        try:
            with tarfile.open(fileobj=bounded, mode="r|") as archive:  # type: ignore[call-overload]
                for member in archive:
                    name = member.name.removeprefix("./")
                    if name not in names or not member.isreg():
                        continue
                    if name in seen:
                        raise bad_file(path, f"{name} once", "twice")
                    if not 0 <= member.size <= limit:
                        raise bad_file(path, f"at most {limit} bytes for {name}", str(member.size))
                    seen.add(name)
                    yield name, archive.extractfile(member).read()
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise bad_file(path, "a complete tar archive", f"{type(error).__name__}: {error}") from error
        while bounded.read(CHUNK):  # to the end, so that gzip checks the archive's own checksum
            pass


class _Bounded:
    """A stream that is never read past `total` bytes."""

    def __init__(self, stream: BinaryIO, path: Path, total: int) -> None:
        self._stream, self._path, self._left = stream, path, total

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise bad_file(self._path, "an archive of the official size", "one that unpacks to far more")
        return data


class _Matrix:
    """Stands for NumPy's array in a batch: a matrix of bytes, once the file has said what is in it."""

    values: NDArray[np.uint8] | None = None

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), (int(rows), int(columns)), _Bytes(), False | 0, bytes(values)) if min(
                rows, columns
            ) >= 0 and rows * columns == len(values):
                self.values = np.frombuffer(values, dtype=np.uint8).reshape(rows, columns)
            case _:
                raise pickle.UnpicklingError("an array that is not a plain matrix of uint8")


class _Bytes:
    """Stands for NumPy's data type in a batch: uint8 alone."""

    def __init__(self, kind: object, *_: object) -> None:
        if kind not in ("u1", b"u1"):
            raise pickle.UnpicklingError("an array of another type than uint8")

    def __setstate__(self, state: object) -> None:
        """The byte order and the like, which bytes do not have."""


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes at protocol 2."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"a text to be encoded as {str(encoding)[:20]!r}")
    return text.encode("latin-1")


KNOWN: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Matrix(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _Matrix(),
    ("numpy", "ndarray"): lambda *_: None,  # named as the first argument of _reconstruct
    ("numpy", "dtype"): _Bytes,
    ("_codecs", "encode"): _encode,
}
"""The names that the official files, and copies that Python 3 wrote, refer to, and what is called instead."""


class _Unpickler(pickle._Unpickler):
    """The standard library's reader in Python: unlike the one in C it allocates no more than the file has bytes."""

    def find_class(self, module: str, name: str) -> Any:
        """Look a name up among those that are known."""
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"a reference to {f'{module}.{name}'[:100]!r}, which was not followed")
        # A function of its own for each mention: what the file does to it ends with the file.
        return lambda *arguments: KNOWN[module, name](*arguments)


def unpickle(data: bytes, where: Path | str) -> object:
    """Read a pickle of plain values and matrices of bytes; strings of Python 2 become bytes."""
    try:
        value = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(value, dict | list | tuple | int | str | bytes | None):
            raise pickle.UnpicklingError(f"a {type(value).__name__}")
        return value
    except Exception as error:  # a damaged file may stumble anywhere
        expected = "a protocol 2 pickle of plain values and byte arrays, as in the official files"
        why = str(error) if isinstance(error, pickle.UnpicklingError) else f"{type(error).__name__}: {error}"
        raise bad_file(where, expected, why[:200]) from error
