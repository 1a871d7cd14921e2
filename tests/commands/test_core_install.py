"""Commands on the core install, where no package of an extra can be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.analysis.stores import write_mixed_store

CODE = """
import sys, warnings
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None  # neither imported nor found
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
from headway.commands.main import main
sys.exit(main(sys.argv[1:]))
"""
EXTRAS = "numpy,pyarrow,scipy,rich,matplotlib,jinja2,pooch,gymnasium,minigrid,PIL,imageio,starlette,uvicorn,fsspec"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("core")
    write_mixed_store(root, epochs=2, seeds=1)
    return root


def run(words: list[str], missing: str = EXTRAS) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CODE, missing, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["demo"], "experiments,report"),
        (["run", "controlled", "--dry-run"], "experiments"),
        (["fetch", "s3://bucket/runs", "runs"], "remote"),
        (["report"], "report"),
        (["watch"], "watch"),
        (["play", "0123456789abcdef"], "rl"),
        (["figures"], "report"),
        (["claims"], "report"),
        (["export", "--out", "runs.parquet"], "report"),
        (["verify"], "experiments,report"),
        (["bench", "--quick"], "bench"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(words: list[str], extra: str) -> None:
    done = run(words)
    assert done.returncode == 1
    assert f"is not installed; run: pip install 'headway-torch[{extra}]'" in done.stderr.splitlines()[-1]


def test_exploration_names_its_extra() -> None:
    done = run(["run", "doorkey", "--dry-run"], "gymnasium,minigrid")
    assert "pip install 'headway-torch[rl]'" in done.stderr.splitlines()[-1]


def test_status_needs_no_extra(store: Path) -> None:
    assert run(["status", str(store)]).returncode == 0
    assert run(["status", str(store), "--format", "json"]).returncode == 0
    assert "'headway-torch[report]'" in run(["status", str(store), "--format", "csv"]).stderr
