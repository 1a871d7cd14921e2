"""The pages on signals, telemetry and the adapters quote measured numbers, and their code is sound."""

from __future__ import annotations

import ast
import json
import re
import statistics
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / "signals.md"] + [
    ROOT / "docs" / "howto" / f"{name}.md"
    for name in ("pytorch", "lightning", "transformers", "torchdata", "telemetry")
]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def results(name: str) -> dict:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


def test_the_areas_of_the_label_errors() -> None:
    measured = results("label_errors")
    for name, areas in measured["areas"].items():
        assert f"| {name} | {statistics.fmean(areas):.3f} |" in page("signals.md")
    assert f"{statistics.fmean(measured['gmc_of_wrong_to_clean']):.1f} times" in page("signals.md")
    assert f"{measured['settings']['flipped']:.0%} of the labels" in page("signals.md")


def test_the_shares_of_the_noise() -> None:
    measured = results("signals")
    for name in measured["results"]["apart"]:
        cells = []
        for situation in ("apart", "mixed", "learned"):
            own = measured["results"][situation][name]
            cells.append(f"{statistics.fmean(own['noise']):.0%} ({statistics.fmean(own['late']):.0%})")
        assert f"| {name} | {' | '.join(cells)} |" in page("signals.md")


def test_the_two_sources() -> None:
    measured = results("two_sources")
    shares = {name: statistics.fmean(own["noise_share"]) for name, own in measured["signals"].items()}
    assert shares["gmc"] <= shares["uniform"]
    assert shares["loss"] > 0.7
    text = page("signals.md")
    assert f"the loss {shares['loss']:.0%}" in text
    assert f"GMC {shares['gmc']:.0%}" in text
    assert (ROOT / "docs" / "figures" / "two_sources.svg").exists()


def test_the_couplings() -> None:
    measured = results("coupling")["sources"]
    text = page("howto/telemetry.md")
    for name, own in measured.items():
        cell = f"{min(own['coupling']):.4f} to {max(own['coupling']):.4f}"
        assert re.search(rf"\| {name} \| {own['loss']:.2f} \| {own['gradient_norm']:.0f} \| {cell} \|", text), (
            name,
            cell,
        )


def test_the_shares_of_the_plain_example() -> None:
    measured = results("plain_pytorch")
    text = " ".join(page("howto/pytorch.md").split())
    assert f"after {measured['steps']} batches" in text
    for name, words in (("rule", "for a rule"), ("digits", "for digits"), ("noise", "for noise")):
        assert f"{measured['shares'][name]:.0%} {words}" in text, name


def test_the_costs_are_as_promised() -> None:
    assert results("sampler")["indices_per_second"]["4 sources"]["cpu"] >= 1e6
    assert all(kinds["GMC"]["median"] >= 0.8 for kinds in results("huggingface")["kept"].values())
    assert min(own["ratio"] for own in results("sb3")["results"].values()) >= 0.7


def blocks(path: Path) -> list[str]:
    found = re.findall(r"(<!-- not run: [^\n]+ -->\n+)?```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL)
    return [code for skipped, code in found if not skipped]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_code_is_python(path: Path) -> None:
    assert all(ast.parse(block).body for block in blocks(path))


def test_the_plain_page_runs() -> None:
    torch.manual_seed(0)
    web, books = (list(TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))) for _ in range(2))
    model = nn.Sequential(OrderedDict(body=nn.Linear(4, 8), head=nn.Linear(8, 3)))
    names = {"web": web, "books": books, "model": model, "optimizer": torch.optim.Adam(model.parameters())}
    for block in blocks(ROOT / "docs" / "howto" / "pytorch.md"):
        exec(compile(block, "pytorch.md", "exec"), names)
    assert sum(names["sampler"].counts.values()) == 128


def test_links_lead_somewhere() -> None:
    for path in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", path.read_text("utf-8")):
            assert target.startswith("http") or (path.parent / target).exists(), (path.name, target)
