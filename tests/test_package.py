"""The distribution: what is in it, and that its wheel works where nothing but torch is installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]

pytestmark = pytest.mark.slow

# headway comes first: without NumPy, torch warns when it is imported, unless headway imports it.
PROGRAM = """
import headway
meters = headway.Meter
import torch
model = torch.nn.Linear(3, 2)
meter = headway.Meter(model, headway.GMC())
for _ in range(3):
    scores = meter.backward(model(torch.randn(4, 3)).square().sum(1))
print(headway.__version__, tuple(scores.shape))
"""


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(*PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


def test_the_wheel_holds_the_package_alone(wheel: Path) -> None:
    assert wheel.name.startswith("headway_torch-")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        metadata = content.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"headway", "headway_torch"}
    assert "headway/py.typed" in names
    head = metadata.partition("\n\n")[0]
    for line in ("Name: headway-torch", "License-Expression: MIT", "Project-URL: Repository,"):
        assert line in head
    assert "headway-torch[sb3]" in metadata, "the README is the description"


def test_the_wheel_works_with_torch_alone_and_names_missing_extras(wheel: Path, tmp_path: Path) -> None:
    assert run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path).returncode == 0
    python = tmp_path / "env" / "bin" / "python"
    installed = run(
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "-c",
        ROOT / "constraints.txt",
        f"headway-torch @ {wheel.as_uri()}",
        cwd=tmp_path,
    )
    assert installed.returncode == 0, installed.stderr
    assert run(python, "-c", "import numpy", cwd=tmp_path).returncode != 0, "nothing else is installed"
    used = run(python, "-W", "always", "-c", PROGRAM, cwd=tmp_path)
    assert (used.returncode, used.stderr) == (0, "")
    assert used.stdout.split()[1:] == ["(4,)"]
    program = tmp_path / "env" / "bin" / "headway"
    assert run(program, "--help", cwd=tmp_path).returncode == 0
    for command in (["demo"], ["run", "controlled"], ["report"], ["claims"], ["watch"], ["status"]):
        refused = run(program, *command, cwd=tmp_path)
        assert refused.returncode in (1, 2), command
        assert "Traceback" not in refused.stderr, refused.stderr
        assert "pip install 'headway-torch[" in refused.stderr or command == ["status"], refused.stderr


def test_the_sdist_is_complete(tmp_path: Path) -> None:
    pytest.importorskip("build")
    built = run(sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    (file,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(file) as content:
        inside = {name.partition("/")[2] for name in content.getnames()}
    for name in (
        "campaigns/paper.toml",
        "results/noise-mnist.parquet",
        "CONTRIBUTING.md",
        "Makefile",
        "tests/conftest.py",
    ):
        assert name in inside, name
