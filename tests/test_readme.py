"""The README's example runs as it stands, and is short."""

from __future__ import annotations

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
