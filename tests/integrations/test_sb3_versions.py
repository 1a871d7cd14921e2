"""What is said where Stable-Baselines3 or Gymnasium is missing, or too old."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from headway.errors import MissingExtraError, WrongVersionError
from headway.integrations import gymnasium, rlexplore, sb3, versions

ENTRIES = [
    pytest.param(sb3, "OnPolicyIntrinsicCallback", "stable-baselines3", "sb3", "2.6", id="sb3"),
    pytest.param(gymnasium, "IntrinsicRewardWrapper", "gymnasium", "rl", "1.1", id="gymnasium"),
]


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had been imported yet."""
    for module in (sb3, gymnasium):
        for name in module.__all__:
            monkeypatch.delitem(vars(module), name, raising=False)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(("module", "name", "package", "extra", "least"), ENTRIES)
def test_a_missing_package_is_named_with_the_command(
    module: Any, name: str, package: str, extra: str, least: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(asked: str) -> str:
        raise PackageNotFoundError(asked)

    monkeypatch.setattr(versions, "version", missing)
    with pytest.raises(
        MissingExtraError, match=re.escape(f"{package} is not installed; run: pip install 'headway[{extra}]'")
    ):
        getattr(module, name)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(("module", "name", "package", "extra", "least"), ENTRIES)
def test_a_package_that_cannot_be_imported_counts_as_missing(
    module: Any, name: str, package: str, extra: str, least: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "version", lambda asked: versions.SUPPORTED[asked].least)
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with pytest.raises(
        MissingExtraError, match=re.escape(f"{package} is not installed; run: pip install 'headway[{extra}]'")
    ):
        getattr(module, name)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(("module", "name", "package", "extra", "least"), ENTRIES)
def test_an_old_version_is_named_with_the_one_that_is_needed(
    module: Any, name: str, package: str, extra: str, least: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "version", lambda asked: "0.29.1")
    with pytest.raises(WrongVersionError, match=f"expected {package} {least} or newer, got 0.29.1"):
        getattr(module, name)


@pytest.mark.parametrize(("module", "name", "package", "extra", "least"), ENTRIES)
def test_the_minimum_is_that_of_the_extra(module: Any, name: str, package: str, extra: str, least: str) -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert f'"{package}>={least}"' in text
    assert versions.SUPPORTED[package].least == least


@pytest.mark.parametrize("module", [sb3, gymnasium, rlexplore])
def test_only_public_names_are_there(module: Any) -> None:
    assert dir(module) == sorted(module.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


def test_importing_the_adapters_imports_no_other_library() -> None:
    names = ", ".join(f"headway.integrations.{name}" for name in ("sb3", "gymnasium", "rlexplore"))
    code = f"import sys, {names}; print({{'stable_baselines3', 'gymnasium', 'rllte'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
