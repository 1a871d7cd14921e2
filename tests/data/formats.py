"""Writers of small files in the official formats, independent of the readers under test."""

import gzip
import io
import pickle
import random
import struct
import tarfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

IDX_NAMES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]
BATCH_NAMES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
OBJECTS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def idx_bytes(values: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes."""
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def grey_images(count: int, seed: int = 0, side: int = 28) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side), dtype=np.uint8)


def labels_for(count: int) -> np.ndarray:
    return (np.arange(count) % 10).astype(np.uint8)


def write_mnist(folder: Path, train: int = 20, test: int = 10, packed: bool = True) -> dict[str, bytes]:
    """Four small IDX files; gives their unpacked contents by name."""
    contents = {
        "train-images-idx3-ubyte": idx_bytes(grey_images(train)),
        "train-labels-idx1-ubyte": idx_bytes(labels_for(train)),
        "t10k-images-idx3-ubyte": idx_bytes(grey_images(test, seed=1)),
        "t10k-labels-idx1-ubyte": idx_bytes(labels_for(test)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data, mtime=0))
        else:
            (folder / name).write_bytes(data)
    return contents


def colour_rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def short(text: str) -> bytes:
    """SHORT_BINSTRING, a string of Python 2."""
    return b"U" + bytes([len(text)]) + text.encode()


def python2_batch(rows: np.ndarray, labels: list[int], dtype: str = "u1") -> bytes:
    """The official form of a batch, opcode by opcode: protocol 2, written by Python 2."""
    raw = rows.tobytes()
    empty = b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85"
    empty += short("b") + b"\x87Rq\x08"
    shape = b"J" + struct.pack("<i", rows.shape[0]) + b"M" + struct.pack("<H", rows.shape[1]) + b"\x86"
    kind = b"cnumpy\ndtype\nq\x09" + short(dtype) + b"K\x00K\x01\x87Rq\x0a"
    kind += b"(K\x03" + short("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = empty + b"(K\x01" + shape + kind + b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb"
    listed = b"](" + b"".join(b"J" + struct.pack("<i", label) for label in labels) + b"e"
    names = b"](" + b"".join(short(f"image_{k}.png") for k in range(len(labels))) + b"e"
    return (
        b"\x80\x02}q\x01("
        + short("batch_label")
        + short("training batch 1 of 5")
        + short("labels")
        + listed
        + short("data")
        + array
        + short("filenames")
        + names
        + b"u."
    )


def python3_batch(rows: np.ndarray, labels: list[int], protocol: int = 2) -> bytes:
    """The same as Python 3 writes it, where bytes become text and a call of encode."""
    return pickle.dumps(
        {b"batch_label": b"a batch", b"labels": labels, b"data": rows, "empty": [], "one": [1], "none": None},
        protocol=protocol,
    )


def batch_contents(count: int = 4) -> dict[str, bytes]:
    return {
        name: python2_batch(colour_rows(count, seed=k), [int(x) for x in labels_for(count)])
        for k, name in enumerate(BATCH_NAMES)
    }


def meta_bytes(names: list[str] = OBJECTS) -> bytes:
    return pickle.dumps({b"label_names": [name.encode() for name in names], b"num_vis": 3072}, protocol=2)


def write_cifar(folder: Path, count: int = 4) -> dict[str, bytes]:
    """Six small batches and the list of classes."""
    contents = batch_contents(count)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**contents, "batches.meta": meta_bytes()}.items():
        (folder / name).write_bytes(data)
    return contents


def tar_bytes(members: dict[str, bytes], kind: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar archive, gzipped."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mtime = 1.5 if kind == tarfile.PAX_FORMAT else 1  # a fraction makes an extended header
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def inner(contents: dict[str, bytes]) -> dict[str, bytes]:
    """Contents under the folder that the official archive has."""
    return {f"cifar-10-batches-py/{name}": data for name, data in contents.items()}


@st.composite
def mutated(draw: st.DrawFn, original: bytes) -> bytes:
    """Bytes with a few replaced, inserted or cut out, mostly near the beginning, where headers are."""
    data = bytearray(original)
    chooser = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 6))):
        reach = len(data) if chooser.random() < 0.4 else min(len(data), 300)
        at = chooser.randrange(reach + 1)
        action = chooser.choice(["replace", "insert", "delete", "truncate"])
        if action == "replace":
            data[at : at + 1] = bytes([chooser.randrange(256)])
        elif action == "insert":
            data[at:at] = chooser.randbytes(chooser.randint(1, 8))
        elif action == "delete":
            del data[at : at + chooser.randint(1, 8)]
        elif chooser.random() < 0.3:
            del data[at:]
    return bytes(data)
