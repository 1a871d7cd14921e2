"""The README's example runs as it stands, and is short."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch

README = Path(__file__).parent.parent / "README.md"


def example() -> str:
    found = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found, "the README has no example"
    return found.group(1)


def test_the_example_runs_and_gives_a_score_for_every_sample() -> None:
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(compile(example(), "README.md", "exec"), names)
    assert names["scores"].shape == (64,)
    assert bool((names["scores"] > 0).all())


def test_the_readme_is_short() -> None:
    lines = [line for line in example().splitlines() if line.strip()]
    assert len(lines) <= 13, f"expected about ten lines of code and three imports, got {len(lines)}"
    text = re.sub(
        r"```.*?```|<!--.*?-->|<[^>]+>|\]\([^)]*\)|\$\$.*?\$\$", " ", README.read_text("utf-8"), flags=re.DOTALL
    )
    assert len(re.findall(r"[A-Za-z][A-Za-z'-]+", text)) <= 700


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert target.startswith("http") or (README.parent / target).exists(), target


def test_the_benchmark_table_is_that_of_the_measured_results() -> None:
    text = README.read_text(encoding="utf-8")
    section = re.search(r"<!-- benchmarks -->(.*?)<!-- /benchmarks -->", text, re.DOTALL)
    assert section, "the README has no benchmark section"
    results = json.loads((README.parent / "benchmarks" / "results" / "bench.json").read_text(encoding="utf-8"))
    for case in results["cases"]:
        ratios = {timing["variant"]: timing["ratio"]["median"] for timing in case["timings"]}
        cells = [_cell(ratios.get(name)) for name in ("headway", "torch.func", "opacus", "backpack")]
        row = f"| {case['title']}, batch {case['batch']} | **{cells[0]}** | {' | '.join(cells[1:])} |"
        assert row in section.group(1), row


def _cell(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
