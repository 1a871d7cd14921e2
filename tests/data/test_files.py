import dataclasses
import gzip
import hashlib
import os
import tracemalloc
from pathlib import Path

import pytest

from headway.data.catalogue import CATALOGUE, CIFAR10, FASHION_MNIST, MNIST
from headway.data.files import (
    SearchPath,
    cache_dir,
    describe,
    find,
    is_file,
    matches,
    read_bounded,
    roots,
    search_paths,
)
from headway.errors import DataError
from tests.data.formats import write_cifar, write_mnist

CONTENT = bytes(range(256)) * 8


def test_a_file_is_read_packed_or_not_whatever_its_name(tmp_path: Path) -> None:
    for name, data in {"a": CONTENT, "a.gz": gzip.compress(CONTENT), "b": gzip.compress(CONTENT)}.items():
        (tmp_path / name).write_bytes(data)
        assert read_bounded(tmp_path / name, len(CONTENT)) == CONTENT
    (tmp_path / "plain.gz").write_bytes(CONTENT)
    assert read_bounded(tmp_path / "plain.gz", len(CONTENT)) == CONTENT


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_longer_than_allowed_is_refused(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "f"
    path.write_bytes(gzip.compress(CONTENT) if packed else CONTENT)
    with pytest.raises(DataError, match=r"f: expected at most 2047 bytes, got more"):
        read_bounded(path, len(CONTENT) - 1)


def test_a_gzip_bomb_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(200_000_000), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="at most 1000000 bytes"):
            read_bounded(path, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_truncated_gzip_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(CONTENT)[:-cut])
    with pytest.raises(DataError, match=r"cut.gz: .*got EOFError"):
        read_bounded(path, len(CONTENT))


@pytest.mark.parametrize("position", [15, -8, -4])
def test_a_corrupt_gzip_is_refused(tmp_path: Path, position: int) -> None:
    path = tmp_path / "bad.gz"
    data = bytearray(gzip.compress(CONTENT))
    data[position] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"bad\.gz: expected "):
        read_bounded(path, len(CONTENT))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert not is_file(tmp_path)
    with pytest.raises(DataError, match="expected a readable"):
        read_bounded(tmp_path, 10)


def test_a_path_that_cannot_be_is_no_file() -> None:
    assert not is_file(Path("a\0b"))
    assert not is_file(Path("x" * 5000))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(CONTENT)
    path.chmod(0)
    with pytest.raises(DataError, match="PermissionError"):
        read_bounded(path, len(CONTENT))


def test_checksums_name_their_algorithm() -> None:
    assert matches(CONTENT, "sha256:" + hashlib.sha256(CONTENT).hexdigest())
    assert matches(CONTENT, "md5:" + hashlib.md5(CONTENT, usedforsecurity=False).hexdigest())
    assert not matches(CONTENT + b"x", "sha256:" + hashlib.sha256(CONTENT).hexdigest())


def test_the_argument_comes_first_then_the_variable_then_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "env"))
    paths = roots(tmp_path / "arg")
    assert [path.folder for path in paths] == [tmp_path / "arg", tmp_path / "env", cache]
    assert [path.origin for path in paths] == ["data_dir", "$HEADWAY_DATA", "cache"]


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("HEADWAY_DATA", "")
    assert [path.folder for path in roots(None)] == [cache]


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("HEADWAY_DATA", "~/env")
    folders = [path.folder for path in roots("~/arg")]
    assert folders[:2] == [Path("/home/someone/arg"), Path("/home/someone/env")]
    assert roots("~nobody-of-this-name/x")[0].folder == Path("~nobody-of-this-name/x")


def test_the_cache_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    for platform, expected in {
        "linux": "/xdg/headway",
        "win32": "/local/headway",
        "darwin": "/home/someone/Library/Caches/headway",
    }.items():
        monkeypatch.setattr("sys.platform", platform)
        assert cache_dir() == Path(expected)


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_a_cache_home_that_is_not_absolute_is_ignored(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_dir() == Path("/home/someone/.cache/headway")


def test_system_packages_come_last() -> None:
    assert search_paths(FASHION_MNIST, None)[-1] == SearchPath(
        Path("/usr/share/datasets/fashion-mnist"), "system package"
    )


def test_a_system_package_is_found(tmp_path: Path) -> None:
    write_mnist(tmp_path / "package")
    spec = dataclasses.replace(FASHION_MNIST, system_folders=(str(tmp_path / "package"),))
    found = find(spec, search_paths(spec, tmp_path / "empty"))
    assert found is not None
    assert found.source == tmp_path / "package"


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_the_usual_layouts_are_found(tmp_path: Path, folder: str, packed: bool) -> None:
    write_mnist(tmp_path / folder, packed=packed)
    found = find(MNIST, search_paths(MNIST, tmp_path))
    assert found is not None
    assert found.source == tmp_path / folder
    assert all((path.suffix == ".gz") == packed for path in found.files.values())


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    write_mnist(tmp_path)  # the file names are the same, so they must lie in a folder of their own
    write_mnist(tmp_path / "mnist")
    assert find(FASHION_MNIST, [SearchPath(tmp_path / folder, "x") for folder in FASHION_MNIST.folders]) is None


def test_an_incomplete_folder_is_passed_over(tmp_path: Path) -> None:
    write_mnist(tmp_path / "a" / "mnist")
    write_mnist(tmp_path / "b" / "mnist")
    (tmp_path / "a" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    found = find(MNIST, [*search_paths(MNIST, tmp_path / "a"), *search_paths(MNIST, tmp_path / "b")])
    assert found is not None
    assert found.source == tmp_path / "b" / "mnist"


def test_batches_come_before_the_archive(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").touch()
    found = find(CIFAR10, search_paths(CIFAR10, tmp_path))
    assert found is not None
    assert found.source == tmp_path / "cifar-10-python.tar.gz"
    write_cifar(tmp_path / "cifar-10-batches-py")
    found = find(CIFAR10, search_paths(CIFAR10, tmp_path))
    assert found is not None
    assert found.source == tmp_path / "cifar-10-batches-py"


def test_a_search_path_is_described_by_what_it_lacks(tmp_path: Path) -> None:
    path = SearchPath(tmp_path, "data_dir")
    assert describe(MNIST, path) == f"{tmp_path} (data_dir): none of the files"
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert describe(MNIST, path).endswith("only some of the files, t10k-labels-idx1-ubyte missing")


def test_the_catalogue_is_consistent() -> None:
    for name, spec in CATALOGUE.items():
        assert spec.name == name
        assert len(spec.class_names) == 10
        assert all(url.startswith("https://") and url.endswith("/") for d in spec.downloads for url in d.mirrors)
        assert all(len(d.mirrors) > 1 for d in spec.downloads)
        assert all(d.checksum.startswith("sha256:") and len(d.checksum) == 71 for d in spec.downloads)
        names = {d.name.removesuffix(".gz") for d in spec.downloads}
        assert names == ({spec.archive.removesuffix(".gz")} if spec.archive else set(spec.contents))
