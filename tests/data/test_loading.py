import dataclasses
import gzip
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.data import DATASETS, Dataset, load, loading
from headway.data.catalogue import MNIST, Download
from headway.errors import DataError
from tests.data.formats import (
    IDX_NAMES,
    batch_contents,
    grey_images,
    idx_bytes,
    inner,
    labels_for,
    mutated,
    tar_bytes,
    write_mnist,
)
from tests.data.server import Answer, Server, serve


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def official(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Make small files the official ones; gives them, packed, by name."""
    contents = write_mnist(tmp_path / "published")
    packed = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in contents.items()}
    spec = dataclasses.replace(
        MNIST,
        counts=(20, 10),
        contents={name: sha256(data) for name, data in contents.items()},
        downloads=tuple(
            Download(name, len(data), sha256(data), ("https://localhost:1/",)) for name, data in packed.items()
        ),
    )
    monkeypatch.setitem(loading.CATALOGUE, "mnist", spec)  # type: ignore[arg-type]
    return packed


@pytest.fixture
def server(official: dict[str, bytes], plain_http: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Publish the official files on a server."""
    with serve() as running:
        spec = loading.CATALOGUE["mnist"]
        downloads = tuple(dataclasses.replace(d, mirrors=(running.address,)) for d in spec.downloads)
        monkeypatch.setitem(
            loading.CATALOGUE, "mnist", dataclasses.replace(spec, downloads=downloads)  # type: ignore[arg-type]
        )  # fmt: skip
        running.answers.update({f"/{name}": Answer(data) for name, data in official.items()})
        yield running


def test_the_names_are_known() -> None:
    assert tuple(DATASETS) == ("digits", "mnist", "fashion-mnist", "cifar10")
    assert all(entry.classes == 10 for entry in DATASETS.values())
    assert [entry.shape for entry in DATASETS.values()] == [(1, 8, 8), (1, 28, 28), (1, 28, 28), (3, 32, 32)]


@pytest.mark.parametrize(("name", "hint"), [("minst", "; did you mean mnist?"), ("imagenet", ""), ("", "")])
def test_an_unknown_name_lists_the_known_ones(name: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        load(name)
    known = "digits, mnist, fashion-mnist, cifar10"
    assert str(caught.value) == f"expected one of the datasets {known}, got {name!r}{hint}"


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_dataset_is_read(tmp_path: Path, name: str, packed: bool) -> None:
    write_mnist(tmp_path / name, train=20, test=10, packed=packed)
    dataset = load(name, tmp_path, download=False)
    assert dataset.name == name
    assert dataset.image_shape == (1, 28, 28)
    assert np.array_equal(dataset.train.images[:, 0], grey_images(20))
    assert np.array_equal(dataset.test.images[:, 0], grey_images(10, seed=1))
    assert np.array_equal(dataset.train.labels, labels_for(20))
    assert dataset.train.images.dtype == np.uint8
    assert dataset.train.labels.dtype == np.int64
    assert dataset.source == str(tmp_path / name)


def test_packing_does_not_change_the_fingerprint(tmp_path: Path) -> None:
    write_mnist(tmp_path / "a" / "mnist", packed=True)
    write_mnist(tmp_path / "b" / "mnist", packed=False)
    first, second = (load("mnist", tmp_path / place, download=False) for place in "ab")
    assert first.fingerprint == second.fingerprint


def test_the_places_are_searched_in_order(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "env"))
    for folder in (cache, tmp_path / "env", tmp_path / "arg"):
        write_mnist(folder / "mnist")
        assert load("mnist", tmp_path / "arg", download=False).source == str(folder / "mnist")


def test_the_official_data_has_no_note(tmp_path: Path, official: dict[str, bytes]) -> None:
    (tmp_path / "published").rename(tmp_path / "mnist")
    assert load("mnist", tmp_path, download=False).note == ""


def test_a_copy_has_a_note_that_names_the_files(tmp_path: Path, official: dict[str, bytes]) -> None:
    (tmp_path / "published").rename(tmp_path / "mnist")
    images = idx_bytes(grey_images(20, seed=7))
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    note = load("mnist", tmp_path, download=False).note
    assert note == "checksums differ from the official ones: train-images-idx3-ubyte"


def test_a_smaller_copy_says_how_small(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", train=20, test=10)
    note = load("mnist", tmp_path, download=False).note
    assert note.endswith("; 20 training and 10 test images instead of 60000 and 10000")


def test_images_and_labels_must_be_equally_many(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", train=20, packed=False)
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx_bytes(labels_for(19)))
    expected = "expected 20 labels, one for each image in train-images-idx3-ubyte, got 19"
    with pytest.raises(DataError, match=f"train-labels-idx1-ubyte: {expected}"):
        load("mnist", tmp_path, download=False)


@pytest.mark.parametrize("name", IDX_NAMES)
def test_a_truncated_file_is_named(tmp_path: Path, name: str) -> None:
    write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / f"{name}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=rf"{name}\.gz: .*got EOFError"):
        load("mnist", tmp_path, download=False)


def test_a_damaged_file_is_not_papered_over_by_another_place(tmp_path: Path, cache: Path) -> None:
    write_mnist(tmp_path / "mnist")
    write_mnist(cache / "mnist")
    (tmp_path / "mnist" / IDX_NAMES[0]).touch()
    (tmp_path / "mnist" / f"{IDX_NAMES[0]}.gz").unlink()
    with pytest.raises(DataError, match=r"0x00000803, got 0x\(empty\)"):
        load("mnist", tmp_path)


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(10_000_000)))
    with pytest.raises(DataError, match=r"t10k-labels.*: expected at most 10008 bytes, got more"):
        load("mnist", tmp_path, download=False)


def test_the_error_for_missing_files_says_everything(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "env"))
    with pytest.raises(DataError) as caught:
        load("fashion-mnist", tmp_path / "arg", download=False)
    message = str(caught.value)
    for name in IDX_NAMES:
        assert f"{name}.gz" in message
        assert (
            f"https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/{name}.gz" in message
        )
    for place in (tmp_path / "arg", tmp_path / "env", cache):
        assert f"{place / 'fashion-mnist'} (" in message
        assert f"{place / 'FashionMNIST/raw'} (" in message
    assert "Downloading was not allowed." in message
    assert f"Put the files into {tmp_path / 'arg' / 'fashion-mnist'}," in message
    assert "apt install dataset-fashion-mnist" in message
    assert not (tmp_path / "arg").exists()


def test_the_error_says_when_the_variable_is_not_set() -> None:
    with pytest.raises(DataError, match=r"\(\$HEADWAY_DATA is not set\)"):
        load("mnist", download=False)


def test_without_a_network_the_error_says_what_failed(tmp_path: Path, official: dict[str, bytes]) -> None:
    with pytest.raises(DataError) as caught:
        load("mnist", tmp_path)  # the mirror is a closed port of this machine
    message = str(caught.value)
    assert message.startswith("dataset mnist: expected the files train-images-idx3-ubyte.gz, ")
    assert "The download failed: expected to download train-images-idx3-ubyte.gz" in message
    assert "https://localhost:1/train-images-idx3-ubyte.gz: " in message
    assert not (tmp_path / "mnist").exists()


def test_without_pooch_the_error_says_everything_too(
    tmp_path: Path, official: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match="pooch is not installed") as caught:
        load("mnist", tmp_path)
    assert f"Put the files into {tmp_path / 'mnist'}," in str(caught.value)


@pytest.mark.parametrize("given", ["argument", "variable", "neither"])
def test_what_is_missing_is_downloaded(
    tmp_path: Path, cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    argument = tmp_path / "arg" if given == "argument" else None
    if given == "variable":
        monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "env"))
    target = {"argument": tmp_path / "arg", "variable": tmp_path / "env", "neither": cache}[given] / "mnist"
    dataset = load("mnist", argument)
    assert dataset.source == str(target)
    assert dataset.note == ""
    assert sorted(path.name for path in target.iterdir()) == sorted(f"{name}.gz" for name in IDX_NAMES)
    assert len(server.asked) == 4
    assert load("mnist", argument).fingerprint == dataset.fingerprint
    assert len(server.asked) == 4  # the second time they are there


def test_a_download_shows_its_progress(tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    load("mnist", tmp_path / "one")
    assert "downloading t10k-labels-idx1-ubyte.gz: 100%" in capsys.readouterr().err
    calls: list[str] = []
    load("mnist", tmp_path / "two", progress=lambda name, done, total: calls.append(name))
    assert set(calls) == {f"{name}.gz" for name in IDX_NAMES}
    assert capsys.readouterr().err == ""


def test_only_what_is_missing_is_downloaded(tmp_path: Path, server: Server) -> None:
    (tmp_path / "published").rename(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert load("mnist", tmp_path).note == ""
    assert server.asked == ["/t10k-labels-idx1-ubyte.gz"]


def test_official_files_are_not_mixed_with_others(tmp_path: Path, server: Server) -> None:
    write_mnist(tmp_path / "mnist", train=19)
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").unlink()
    expected = "train-labels.*: expected the official file, because train-images.* would be downloaded beside it"
    with pytest.raises(DataError, match=expected):
        load("mnist", tmp_path)
    assert server.asked == []


def test_a_tampered_download_is_not_kept(tmp_path: Path, server: Server) -> None:
    answer = server.answers["/t10k-images-idx3-ubyte.gz"]
    server.answers["/t10k-images-idx3-ubyte.gz"] = Answer(answer.body[:-1] + b"\xff")
    with pytest.raises(DataError, match="does not match the known hash"):
        load("mnist", tmp_path)
    names = [path.name for path in (tmp_path / "mnist").iterdir()]
    assert sorted(names) == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]


@pytest.mark.usefixtures("plain_http")
def test_downloading_for_cifar_reads_the_archive_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tar_bytes(inner(batch_contents()))
    with serve() as running:
        running.answers["/cifar-10-python.tar.gz"] = Answer(archive)
        download = Download("cifar-10-python.tar.gz", len(archive), sha256(archive), (running.address,))
        spec = dataclasses.replace(loading.CATALOGUE["cifar10"], downloads=(download,))
        monkeypatch.setitem(loading.CATALOGUE, "cifar10", spec)  # type: ignore[arg-type]
        assert len(load("cifar10", tmp_path).train) == 20
    assert [path.name for path in (tmp_path / "cifar10").iterdir()] == ["cifar-10-python.tar.gz"]


@pytest.mark.parametrize("odd", ["a\0b", "x" * 5000, os.devnull])
def test_an_impossible_data_dir_is_refused(server: Server, odd: str) -> None:
    with pytest.raises(DataError, match="expected to write it"):
        load("mnist", odd)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fuzz")
    write_mnist(root / "mnist", train=3, test=2, packed=False)
    return root


@given(st.sampled_from(IDX_NAMES), st.data(), st.booleans())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_are_refused_or_valid(small: Path, name: str, data: st.DataObject, packed: bool) -> None:
    path = small / "mnist" / name
    original = path.read_bytes()
    try:
        if packed:
            path.write_bytes(data.draw(mutated(gzip.compress(original, mtime=0))))
        else:
            path.write_bytes(data.draw(mutated(original)))
        dataset = _loaded_or_refused(small)
    finally:
        path.write_bytes(original)
    if dataset is not None:
        assert len(dataset.train) == len(dataset.train.images)
        assert len(dataset.test) == len(dataset.test.images)
        assert dataset.train.labels.max() < 10


def _loaded_or_refused(root: Path) -> Dataset | None:
    try:
        return load("mnist", root, download=False)
    except DataError:
        return None
