"""Write docs/mixtures.md anew from the exported runs of the mixture study.

headway run --campaign campaigns/mixture.toml --out lots
headway export lots/mixture --finished --out results/mixture/mixture.parquet
python benchmarks/mixtures.py

Each file is a campaign, with uniform sampling of its own; of runs that are in two, those of the later name count.
"""

from __future__ import annotations

from pathlib import Path

from headway.analysis import load_results
from headway.analysis.mixtures import collect, render

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results" / "mixture", ROOT / "docs" / "mixtures.md"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def made(text: str) -> str:
    """The page with its generated part made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{render(collect(*map(load_results, sorted(RESULTS.glob('*.parquet')))))}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text("utf-8")), "utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
