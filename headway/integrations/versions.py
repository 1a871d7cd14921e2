"""Which versions of other libraries headway works with, and a check that says both numbers when it does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from headway.errors import MissingExtraError, WrongVersionError


@dataclass(frozen=True)
class Supported:
    """What is asked of a package."""

    least: str  # the oldest version that works
    extra: str  # the extra of headway that installs it
    checked: str  # the version that the tests were last run with


SUPPORTED: Mapping[str, Supported] = {
    "lightning": Supported("2.6", "lightning", "2.6.6"),
    "transformers": Supported("5.0", "transformers", "5.22.2"),
    "accelerate": Supported("1.3", "transformers", "1.15.0"),
    "datasets": Supported("4.7", "trl", "5.2.0"),
    "trl": Supported("1.16", "trl", "1.16.0"),
    "gymnasium": Supported("1.1", "rl", "1.4.0"),
    "stable-baselines3": Supported("2.6", "sb3", "2.9.2"),
    "torchdata": Supported("0.11", "torchdata", "0.11.0"),
    "wandb": Supported("0.20", "wandb", "0.31.0"),
}
"""By the name that pip knows. pyproject.toml has the same minima, with the reasons."""


def require(*packages: str) -> None:
    """Make sure that packages are installed, and new enough; an error says how to install them."""
    for package in packages:
        wanted = SUPPORTED[package]
        try:
            found = version(package)
        except PackageNotFoundError as error:
            raise MissingExtraError(package, wanted.extra) from error
        if numbers(found) < numbers(wanted.least):
            raise WrongVersionError(package, wanted.least, found, wanted.extra)
        if find_spec(package.replace("-", "_")) is None:  # pip has a record of it, and Python no module
            raise MissingExtraError(package, wanted.extra)


def numbers(text: str) -> tuple[int, ...]:
    """The release of a version as numbers, without zeros at the end: "2.6.0rc1" -> (2, 6)."""
    found = re.match(r"\d+(\.\d+)*", text)
    release = [int(part) for part in found.group().split(".")] if found else [0]
    while release and release[-1] == 0:
        release.pop()
    return tuple(release)
