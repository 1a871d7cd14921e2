"""Every test here sees an empty environment: no $HEADWAY_DATA, a cache of its own, no system packages."""

import dataclasses
import os
from pathlib import Path

import pytest

from headway.data import loading
from headway.data.catalogue import CATALOGUE


@pytest.fixture(scope="session")
def real_data() -> str | None:
    """The user's $HEADWAY_DATA, read before it is hidden from the tests."""
    return os.environ.get("HEADWAY_DATA")


@pytest.fixture(autouse=True)
def _alone(real_data: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("headway.data.files.PLATFORMS", {})
    without_system = {name: dataclasses.replace(spec, system_folders=()) for name, spec in CATALOGUE.items()}
    monkeypatch.setattr(loading, "CATALOGUE", without_system)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The cache directory of the test."""
    return tmp_path / "cache" / "headway"


@pytest.fixture
def plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow downloads from a server on the loopback address, without https and without a proxy."""
    monkeypatch.setattr("headway.data.files.SCHEME", "http://")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
