"""Every public name is on a page of docs/api/."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "api"
PARTS = (
    "grads",
    "moments",
    "signals",
    "selection",
    "telemetry",
    "rl",
    "rl.bonuses",
    "data",
    "runs",
    "study",
    "analysis",
)
MODULES = ("headway", *(f"headway.{part}" for part in (*PARTS, "analysis.claims", "analysis.report")))
NAMED = re.compile(r"^\.\. (?:auto(?:class|function|exception)|py:data):: (?:[\w.]+\.)?(\w+)$", re.MULTILINE)
WHOLE = re.compile(r"^\.\. automodule:: ([\w.]+)\n +:members:$", re.MULTILINE)
"""A module whose public members are all there."""


def documented() -> tuple[set[str], set[str]]:
    """The names that stand on the pages, and the modules that are there as a whole."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES.glob("*.md"))
    names = set(NAMED.findall(text))
    for members in re.findall(r":members: ([^:`.]+)", text):
        names |= set(re.findall(r"\w+", members))
    return names, set(WHOLE.findall(text))


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    names, whole = documented()
    public = {each for each in module.__all__ if not isinstance(getattr(module, each), ModuleType)}
    assert name in whole or public - names <= {"__version__"}, public - names
