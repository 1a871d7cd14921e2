"""Every Python block of the docs runs, page by page and from top to bottom; so do the tutorials' headway commands.

A block that cannot run alone has a comment above it, `<!-- not run: why -->`. Others find what they take for granted in
`tests/docs/given.py`. Where a block sets `steps`, or trains by `learn(steps)` or for `max_steps`, the test takes fewer.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from headway.commands.main import main
from headway.rl.bonuses.bonus import BONUSES
from tests.docs.given import GIVEN, training

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n+)?```(python|sh)\n(.*?)```", re.DOTALL)
ELSEWHERE = {
    "figures.md": "tests/analysis/charts/test_docs.py makes its runs",
    "howto/pytorch.md": "tests/test_signals_page.py",
}
LIBRARIES = {f"howto/{name}.md" for name in ("accelerate", "lightning", "torchdata", "trainers", "transformers")}
SLOW = LIBRARIES | {"howto/sb3.md", "start/exploration.md", "start/scores.md", "start/study.md"}
COSTLY = "--preset quick"
"""A command with it trains agents: the test adds the runs to the store, and carries none out."""
DEMO = "run controlled --protocol demo --condition noise --signal gmc uniform --seeds 0:2 --epochs 1 --out runs/demo"
"""Stands in for `make run` in the tutorial on the study."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the code of each block that runs."""
    return [(kind, code) for skipped, kind, code in BLOCK.findall(page.read_text("utf-8")) if not skipped]


WARNS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
"""For pages with other libraries, whose imports warn."""
PAGES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW) + [WARNS] * (name in LIBRARIES))
    for page in sorted(DOCS.rglob("*.md"))
    if blocks(page) and (name := page.relative_to(DOCS).as_posix()) not in ELSEWHERE
]


def shorter(code: str) -> str:
    """The same code with fewer steps."""
    code = re.sub(r"^steps = [\d_]+", "steps = 256", code, flags=re.MULTILINE)
    code = re.sub(r"^rollouts = [\d_]+", "rollouts = 2", code, flags=re.MULTILINE)
    code = re.sub(r"\b(max_steps|num_workers)=[\d_]+", r"\1=2", code)
    return re.sub(r"\.learn\([\d_]+", ".learn(64", code)


def run_command(line: str) -> None:
    """Carry out a command of headway; with a plugin in a process of its own, so that nothing stays registered here."""
    program, *options = shlex.split(line, comments=True)
    assert program == "headway", line
    if options[0] == "run":
        options += ["--print-jobs"] if COSTLY in line else ["--workers", "0"]
    if "--plugin" in options:
        environment = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
        subprocess.run(
            [sys.executable, "-m", "headway", *options], check=True, env=environment, stdout=subprocess.DEVNULL
        )
    else:
        assert main(options) == 0, line


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("gymnasium", "jinja2", "matplotlib", "minigrid", "pyarrow", "ray", "stable_baselines3", "torchrl"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    if name == "start/study.md":
        run_command(f"headway {DEMO}")
    monkeypatch.setattr(BONUSES, "_entries", dict(BONUSES._entries))  # a page may register some
    names = {"__name__": "page"} | GIVEN.get(name, training)()
    for number, (kind, code) in enumerate(blocks(DOCS / name)):
        if kind == "sh":
            for line in code.splitlines():
                run_command(line)
        elif saved := re.match(r"# (\w+\.py)\n", code):  # the page says to save it, for a command below
            Path(saved[1]).write_text(code, "utf-8")
        else:
            exec(compile(shorter(code), f"{name}, block {number}", "exec"), names)


def test_a_block_that_does_not_run_says_why() -> None:
    for name, reason in ELSEWHERE.items():
        assert blocks(DOCS / name), (name, reason)
    for page in DOCS.rglob("*.md"):
        for reason in re.findall(r"<!-- not run: (.*?) -->", page.read_text("utf-8")):
            assert len(reason.split()) >= 3, (page.name, reason)


def test_pages_are_linked() -> None:
    """Every page is in the sidebar."""
    index = (DOCS / "index.md").read_text("utf-8")
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert name == "index" or re.search(rf"^{re.escape(name)}$", index, re.MULTILINE), name
