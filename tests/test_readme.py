"""The README's example runs as it stands, and is short."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch

README = Path(__file__).parent.parent / "README.md"


def example() -> str:
    found = re.search(r"## A first example\n+```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found, "the README has no first example"
    return found.group(1)


def test_the_first_example_runs(capsys) -> None:
    torch.manual_seed(0)
    exec(compile(example(), "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    pattern = r"television against rule: loss (\d+\.\d), GMC (\d+\.\d)"
    pairs = [re.fullmatch(pattern, line).groups() for line in lines]
    assert all(float(loss) > 1 > float(gmc) for loss, gmc in pairs), lines


def test_the_first_example_is_short() -> None:
    lines = [line for line in example().splitlines() if line.strip()]
    assert len(lines) <= 20, f"expected at most 20 lines, got {len(lines)}"


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
