import dataclasses
from pathlib import Path

import pytest

from headway.data.catalogue import CATALOGUE, CIFAR10, FASHION_MNIST, MNIST
from headway.data.places import Place, cache_dir, candidates, describe, find, roots
from tests.data.formats import write_cifar, write_mnist


def test_the_argument_comes_first_then_the_variable_then_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "env"))
    places = roots(tmp_path / "arg")
    assert [place.folder for place in places] == [tmp_path / "arg", tmp_path / "env", cache]
    assert [place.origin for place in places] == ["data_dir", "$HEADWAY_DATA", "cache"]


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("HEADWAY_DATA", "")
    assert [place.folder for place in roots(None)] == [cache]


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("HEADWAY_DATA", "~/env")
    folders = [place.folder for place in roots("~/arg")]
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
    assert candidates(FASHION_MNIST, None)[-1] == Place(Path("/usr/share/datasets/fashion-mnist"), "system package")


def test_a_system_package_is_found(tmp_path: Path) -> None:
    write_mnist(tmp_path / "package")
    spec = dataclasses.replace(FASHION_MNIST, system_folders=(str(tmp_path / "package"),))
    found = find(spec, candidates(spec, tmp_path / "empty"))
    assert found is not None
    assert found.source == tmp_path / "package"


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_the_usual_layouts_are_found(tmp_path: Path, folder: str, packed: bool) -> None:
    write_mnist(tmp_path / folder, packed=packed)
    found = find(MNIST, candidates(MNIST, tmp_path))
    assert found is not None
    assert found.source == tmp_path / folder
    assert all((path.suffix == ".gz") == packed for path in found.files.values())


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    write_mnist(tmp_path)  # the file names are the same, so they must lie in a folder of their own
    write_mnist(tmp_path / "mnist")
    assert find(FASHION_MNIST, [Place(tmp_path / folder, "x") for folder in FASHION_MNIST.folders]) is None


def test_an_incomplete_folder_is_passed_over(tmp_path: Path) -> None:
    write_mnist(tmp_path / "a" / "mnist")
    write_mnist(tmp_path / "b" / "mnist")
    (tmp_path / "a" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    found = find(MNIST, [*candidates(MNIST, tmp_path / "a"), *candidates(MNIST, tmp_path / "b")])
    assert found is not None
    assert found.source == tmp_path / "b" / "mnist"


def test_batches_come_before_the_archive(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").touch()
    found = find(CIFAR10, candidates(CIFAR10, tmp_path))
    assert found is not None
    assert found.source == tmp_path / "cifar-10-python.tar.gz"
    write_cifar(tmp_path / "cifar-10-batches-py")
    found = find(CIFAR10, candidates(CIFAR10, tmp_path))
    assert found is not None
    assert found.source == tmp_path / "cifar-10-batches-py"


def test_a_place_is_described_by_what_it_lacks(tmp_path: Path) -> None:
    place = Place(tmp_path, "data_dir")
    assert describe(MNIST, place) == f"{tmp_path} (data_dir): none of the files"
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert describe(MNIST, place).endswith("only some of the files, t10k-labels-idx1-ubyte missing")


def test_the_catalogue_is_consistent() -> None:
    for name, spec in CATALOGUE.items():
        assert spec.name == name
        assert len(spec.class_names) == 10
        assert all(url.startswith("https://") and url.endswith("/") for d in spec.downloads for url in d.mirrors)
        assert all(len(d.mirrors) > 1 for d in spec.downloads)
        assert all(d.checksum.startswith("sha256:") and len(d.checksum) == 71 for d in spec.downloads)
        names = {d.name.removesuffix(".gz") for d in spec.downloads}
        assert names == ({spec.archive.removesuffix(".gz")} if spec.archive else set(spec.contents))
