import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from headway.data import load
from headway.data.catalogue import CIFAR10
from headway.data.cifar import parse_batch
from headway.errors import DataError
from tests.data.formats import (
    BATCH_NAMES,
    batch_contents,
    colour_rows,
    inner,
    meta_bytes,
    mutated,
    python2_batch,
    python3_batch,
    tar_bytes,
    write_cifar,
)


def test_a_batch_is_read_plane_by_plane() -> None:
    rows = colour_rows(2)
    batch = parse_batch(python2_batch(rows, [4, 5]), CIFAR10, "f")
    assert batch.images.shape == (2, 3, 32, 32)
    assert batch.images[1, 2, 3, 4] == rows[1, 2 * 1024 + 3 * 32 + 4]
    assert batch.labels.dtype == np.int64
    assert batch.labels.tolist() == [4, 5]


def test_the_batches_of_a_folder_are_put_in_order(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar10" / "cifar-10-batches-py", count=3)
    cifar = load("cifar10", tmp_path, download=False)
    assert cifar.train.images.shape == (15, 3, 32, 32)
    assert cifar.test.images.shape == (3, 3, 32, 32)
    for k in range(5):
        expected = colour_rows(3, seed=k).reshape(3, 3, 32, 32)
        assert np.array_equal(cifar.train.images[3 * k : 3 * k + 3], expected)
    assert np.array_equal(cifar.test.images, colour_rows(3, seed=5).reshape(3, 3, 32, 32))
    assert cifar.train.labels.tolist() == [0, 1, 2] * 5
    assert cifar.train.images.flags.writeable
    assert cifar.test.images.flags.writeable


def test_the_archive_gives_the_same_as_the_folder(tmp_path: Path) -> None:
    contents = write_cifar(tmp_path / "one" / "cifar-10-batches-py")
    backwards = dict(reversed({**inner(contents), "cifar-10-batches-py/batches.meta": meta_bytes()}.items()))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "cifar-10-python.tar.gz").write_bytes(tar_bytes(backwards))
    folder = load("cifar10", tmp_path / "one", download=False)
    archive = load("cifar10", tmp_path / "two", download=False)
    assert archive.fingerprint == folder.fingerprint
    assert archive.note == folder.note
    assert archive.source.endswith("cifar-10-python.tar.gz")
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["cifar-10-python.tar.gz"]


@pytest.mark.parametrize("folder", [".", "cifar10", "cifar-10-batches-py", "cifar10/cifar-10-batches-py"])
def test_the_usual_layouts_are_found(tmp_path: Path, folder: str) -> None:
    write_cifar(tmp_path / folder)
    assert len(load("cifar10", tmp_path, download=False).train) == 20


def test_a_copy_is_accepted_with_a_note(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    note = load("cifar10", tmp_path, download=False).note
    assert note.startswith("checksums differ from the official ones: data_batch_1, data_batch_2")
    assert note.endswith("; 20 training and 4 test images instead of 50000 and 10000")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (python2_batch(colour_rows(2), [0]), "expected a list of 2 labels, one for each image, got 1"),
        (python2_batch(colour_rows(2), [0, 10]), "expected labels from 0 to 9, got a label 10"),
        (python2_batch(colour_rows(2), [0, -1]), "expected labels from 0 to 9, got a label -1"),
        (python3_batch(colour_rows(1), [True]), "expected labels from 0 to 9, got something else"),
        (python3_batch(colour_rows(1), [2**70]), "expected labels from 0 to 9, got something else"),
        (python3_batch(colour_rows(1), [None]), "expected labels from 0 to 9, got something else"),
        (python3_batch(colour_rows(1), "0"), "expected a list of 1 labels, one for each image, got str"),
        (python2_batch(colour_rows(2)[:, :-1], [0, 1]), "expected data with 3072 values .* got 2x3071"),
        (python2_batch(colour_rows(0), []), "expected from 1 to 10000 entries, got 0"),
        (python2_batch(colour_rows(1), [0], dtype="f4"), "another type than uint8"),
        (python3_batch(None, [0]), "expected data with 3072 values .* got NoneType"),
        (b"\x80\x02}.", "expected data with 3072 values .* got NoneType"),
        (b"\x80\x02].", "expected a dictionary, got list"),
        (python2_batch(colour_rows(2), [0, 1])[:-50], "expected a protocol 2 pickle"),
    ],
)  # fmt: skip
def test_a_bad_batch_is_named_with_what_was_expected(tmp_path: Path, data: bytes, words: str) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(data)
    with pytest.raises(DataError, match=rf"data_batch_3: .*{words}"):
        load("cifar10", tmp_path, download=False)


def test_a_bad_batch_in_the_archive_is_named_too(tmp_path: Path) -> None:
    contents = inner({**batch_contents(), "data_batch_2": b"nonsense"})
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(tar_bytes(contents))
    with pytest.raises(DataError, match=r"tar\.gz: cifar-10-batches-py/data_batch_2: expected a protocol 2"):
        load("cifar10", tmp_path, download=False)


def test_an_archive_without_a_batch_is_refused(tmp_path: Path) -> None:
    contents = batch_contents()
    del contents["data_batch_4"]
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(tar_bytes(inner(contents)))
    with pytest.raises(DataError, match=r"tar\.gz: expected data_batch_4 in it, got only data_batch_1, "):
        load("cifar10", tmp_path, download=False)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(tar_bytes({"cifar-100-python/train": b"x"}))
    with pytest.raises(DataError, match="got none of the batches"):
        load("cifar10", tmp_path, download=False)


@pytest.mark.parametrize("names", [BATCH_NAMES, [], ["truck"] * 10])
def test_other_classes_are_refused(tmp_path: Path, names: list[str]) -> None:
    write_cifar(tmp_path)
    (tmp_path / "batches.meta").write_bytes(meta_bytes(names))
    with pytest.raises(DataError, match=r"batches\.meta: expected the label names airplane, .* got "):
        load("cifar10", tmp_path, download=False)


def test_the_list_of_classes_may_be_absent(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    (tmp_path / "batches.meta").unlink()
    assert load("cifar10", tmp_path, download=False).class_names[3] == "cat"


def test_a_gzip_bomb_for_a_batch_is_refused(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    (tmp_path / "data_batch_1").unlink()
    (tmp_path / "data_batch_1.gz").write_bytes(gzip.compress(bytes(70 << 20), compresslevel=1))
    with pytest.raises(DataError, match=r"data_batch_1\.gz: expected at most 67108864 bytes, got more"):
        load("cifar10", tmp_path, download=False)


@pytest.mark.slow
@given(mutated(python2_batch(colour_rows(2), [3, 9])) | mutated(python3_batch(colour_rows(2), [3, 9])))
@settings(max_examples=400)
def test_damaged_batches_are_refused_or_valid(data: bytes) -> None:
    try:
        batch = parse_batch(data, CIFAR10, "f")
    except DataError:
        return
    assert batch.images.shape == (len(batch), 3, 32, 32)
    assert batch.images.dtype == np.uint8
    assert batch.labels.min() >= 0
    assert batch.labels.max() < 10
