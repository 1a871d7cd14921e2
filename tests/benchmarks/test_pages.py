"""The pages of the docs say what was measured."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.common import quoted

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "benchmarks" / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = load()


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES.PAGES)
def test_a_page_quotes_its_measurement(name: str) -> None:
    path, say = PAGES.PAGES[name]
    page = (ROOT / path).read_text("utf-8")
    assert quoted(page, name, say()) == page, "run: python benchmarks/pages.py"


def test_exploration_is_as_fast_as_promised() -> None:
    for row in PAGES.stored("doorkey")["rows"]:
        assert row["of_published"] >= row["wanted"], row


def test_scores_of_transitions_cost_less_than_the_docs_say() -> None:
    assert "take less than 2% of the rollout's time" in (ROOT / "docs" / "intrinsic.md").read_text("utf-8")
    assert all(row["share"] < 0.02 for row in PAGES.stored("doorkey")["price"])
