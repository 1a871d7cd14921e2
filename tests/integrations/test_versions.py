"""Missing and old packages are named, with what to do."""

from __future__ import annotations

import importlib
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from headway.errors import MissingExtraError, WrongVersionError
from headway.integrations import versions
from headway.integrations.versions import SUPPORTED, numbers, require

ROOT = Path(__file__).parents[2]
ADAPTERS = {
    "lightning": ["lightning"],
    "transformers": ["transformers", "accelerate"],
    "torchdata": ["torchdata"],
    "accelerate": ["accelerate"],
    "sb3": ["stable-baselines3", "gymnasium"],
    "gymnasium": ["gymnasium"],
    "rlexplore": ["gymnasium"],
}


def fresh(monkeypatch: pytest.MonkeyPatch, adapter: str) -> None:
    """Import an adapter as if for the first time."""
    name = f"headway.integrations.{adapter}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module(name)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_missing_package_gives_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch, adapter: str) -> None:
    def missing(package: str) -> str:
        raise versions.PackageNotFoundError(package)

    monkeypatch.setattr(versions, "version", missing)
    package = ADAPTERS[adapter][0]
    extra = SUPPORTED[package].extra
    with pytest.raises(
        MissingExtraError, match=rf"^{package} is not installed; run: pip install 'headway-torch\[{extra}\]', or"
    ):
        fresh(monkeypatch, adapter)


@pytest.mark.parametrize(("adapter", "package"), [(own, name) for own, names in ADAPTERS.items() for name in names])
def test_a_package_that_cannot_be_imported_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch, adapter: str, package: str
) -> None:
    monkeypatch.setattr(versions, "version", lambda name: SUPPORTED[name].least)
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    command = rf"^{package} is not installed; run: pip install 'headway-torch\[{SUPPORTED[package].extra}\]', or"
    with pytest.raises(MissingExtraError, match=command):
        fresh(monkeypatch, adapter)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_old_package_gives_both_versions(monkeypatch: pytest.MonkeyPatch, adapter: str) -> None:
    monkeypatch.setattr(versions, "version", lambda package: "0.9.3")
    package = ADAPTERS[adapter][0]
    least, extra = SUPPORTED[package].least, SUPPORTED[package].extra
    if numbers("0.9.3") >= numbers(least):
        monkeypatch.setattr(versions, "version", lambda package: "0.0.1")
    pattern = (
        rf"expected {package} {least} or newer, got 0\.\d\.\d; run: pip install --upgrade 'headway-torch\[{extra}\]'"
    )
    with pytest.raises(WrongVersionError, match=pattern):
        fresh(monkeypatch, adapter)


def test_versions_compare_as_numbers() -> None:
    assert numbers("2.6") == numbers("2.6.0") == numbers("2.6.0rc1") == (2, 6)
    assert numbers("2.10.1.post0") > numbers("2.9")
    assert numbers("5.0.0.dev0") == (5,)
    assert numbers("unknown") == (0,)[:0]


def test_the_oldest_versions_are_those_of_pyproject_with_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for package, supported in SUPPORTED.items():
        extra = re.search(rf"^{supported.extra} = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
        assert extra, supported.extra
        assert re.search(rf'"{package}>={re.escape(supported.least)}", +# \S', extra.group(1)), package


@pytest.mark.parametrize("package", SUPPORTED)
def test_what_is_installed_here_is_supported(package: str) -> None:
    try:
        version(package)
    except versions.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    require(package)
    assert numbers(SUPPORTED[package].checked) >= numbers(SUPPORTED[package].least)


def test_the_pages_state_the_versions() -> None:
    for adapter in ("lightning", "transformers", "torchdata"):
        packages = ADAPTERS[adapter]
        page = (ROOT / "docs" / "howto" / f"{adapter}.md").read_text("utf-8")
        for package in packages:
            supported = SUPPORTED[package]
            assert f"{package} {supported.least} or newer" in page, (adapter, package)
            assert f"{supported.checked}" in page, (adapter, package)
