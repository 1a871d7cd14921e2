"""Draws the figure of docs/arena.md from the runs in results/arena, light and dark: `python benchmarks/arena.py`."""

from __future__ import annotations

from pathlib import Path

from headway.analysis import load_results
from headway.analysis.arena_tables import draw
from headway.analysis.charts.figure import house_style, save

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Write both."""
    results = load_results(ROOT / "results" / "arena")
    with house_style():
        for name, dark in (("arena", False), ("arena-dark", True)):
            save(draw(results, dark), ROOT / "docs" / "figures" / name, ["svg"])


if __name__ == "__main__":
    main()
