"""The Triton kernel: it agrees with autograd, compiles for devices that are not here, and says where it cannot run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from headway import GMC, Meter
from headway.errors import MissingExtraError, ModelError
from headway.grads import kernels

HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="needs Triton: pip install 'headway-torch[triton]'")


@needs_triton
@pytest.mark.slow
def test_the_kernel_agrees_with_autograd_in_the_interpreter() -> None:
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(Path(__file__).parent / "interpreted.py"),
    ]
    result = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, cwd=root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("products", ["half", "tf32", "ieee"])
def test_the_kernel_compiles_and_fits_the_registers(
    products: str, architecture: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from benchmarks.kernels import compiled

    found = compiled(products, architecture)
    assert found.spilled == 0
    assert found.registers <= 255
    assert found.shared <= 163 * 1024  # what a program may have on the smaller of the two


@pytest.mark.skipif(not HAS_TRITON or torch.cuda.is_available(), reason="needs Triton, and a machine without a GPU")
def test_a_model_on_the_host_is_refused() -> None:
    with pytest.raises(ModelError, match=r"CUDA device.*got one on cpu"):
        Meter(nn.Linear(2, 2), GMC(), kernels="triton")


def test_without_triton_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="triton"):
        Meter(nn.Linear(2, 2), GMC(), kernels="triton")


def test_other_kernels_are_refused() -> None:
    with pytest.raises(ModelError, match="got 'cuda'"):
        Meter(nn.Linear(2, 2), GMC(), kernels="cuda")  # type: ignore[arg-type]
