"""Commands on the core install, where no package of an extra can be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.analysis.stores import write_mixed_store

CODE = """
import contextlib, io, json, sys, warnings
for name in sys.argv[1].split(","):
    sys.modules[name] = None  # neither imported nor found
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
from headway.commands.main import main
for line in sys.stdin.readlines():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(json.loads(line))
    print(json.dumps([code, said.getvalue()]))
"""
EXTRAS = "numpy,pyarrow,scipy,rich,matplotlib,jinja2,pooch,gymnasium,minigrid,PIL,imageio,starlette,uvicorn,fsspec"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("core")
    write_mixed_store(root, epochs=2, seeds=1)
    return root


def run(*commands: list[str], missing: str = EXTRAS) -> list[tuple[int, str]]:
    """What commands, one after the other in a process of their own, end with and write to the error stream."""
    lines = "".join(f"{json.dumps(words)}\n" for words in commands)
    done = subprocess.run(
        [sys.executable, "-c", CODE, missing], input=lines, capture_output=True, text=True, check=True
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_commands_name_the_extra_that_they_need() -> None:
    commands = {
        "demo": "experiments,report",
        "run controlled --dry-run": "experiments",
        "fetch s3://bucket/runs runs": "remote",
        "report": "report",
        "watch": "watch",
        "play 0123456789abcdef": "rl",
        "figures": "report",
        "claims": "report",
        "export --out runs.parquet": "report",
        "verify": "experiments,report",
        "bench --quick": "bench",
    }
    for (command, extra), (code, said) in zip(commands.items(), run(*map(str.split, commands)), strict=True):
        assert code == 1, command
        assert f"is not installed; run: pip install 'headway-torch[{extra}]'" in said.splitlines()[-1], command


@pytest.mark.slow
def test_exploration_names_its_extra() -> None:
    ((_, said),) = run(["run", "doorkey", "--dry-run"], missing="gymnasium,minigrid")
    assert "pip install 'headway-torch[rl]'" in said.splitlines()[-1]


def test_status_needs_no_extra(store: Path) -> None:
    plain, as_json, as_csv = run(
        *(["status", str(store), *form] for form in ([], ["--format", "json"], ["--format", "csv"]))
    )
    assert plain[0] == as_json[0] == 0
    assert "'headway-torch[report]'" in as_csv[1]
