"""The recipes of docs/figures.md work as they stand there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from headway.runs import RunStore
from tests.analysis import stores

PAGE = (Path(__file__).parents[3] / "docs" / "figures.md").read_text("utf-8")
RECIPES = re.findall(r"\| `(\w+)\.(\w+)\(", PAGE)


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    specs = stores.controlled_specs(("digits",), methods=("uniform", "gmc"), seeds=2, epochs=5, protocol="demo")
    stores.finish_all(RunStore("runs"), specs)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/figures.md", "exec"), {})
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"losses.pdf", "losses.png"}


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 9


@pytest.mark.parametrize(("module", "function"), RECIPES)
def test_a_recipe_names_a_function(module: str, function: str) -> None:
    assert callable(getattr(importlib.import_module(f"headway.analysis.charts.{module}"), function))


def test_every_kind_of_figure_is_on_the_page() -> None:
    for name in (
        "groups",
        "ablation",
        "gates",
        "average-loss",
        "auc",
        "telemetry",
        "minigrid",
        "environment",
        "television",
        "sensitivity",
    ):
        assert re.search(rf"\| `{name}", PAGE), name
