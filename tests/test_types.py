"""What type checkers know of a meter's scores."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
import torch
from torch import nn
from headway import GMC, Meter, NormAll

model, losses = nn.Linear(3, 2), torch.ones(3)
reveal_type(Meter(model, GMC()).backward(losses))
reveal_type(Meter(model, [GMC(), NormAll()]).backward(losses))
reveal_type(Meter(model, GMC(), every=4).backward(losses))
reveal_type(Meter(model, [GMC()], every=4, check="always").score(losses))
"""
REVEALED = [
    "torch._tensor.Tensor",
    "dict[str, torch._tensor.Tensor]",
    "torch._tensor.Tensor | None",
    "dict[str, torch._tensor.Tensor] | None",
]


@pytest.mark.slow
def test_mypy_reveals_what_a_meter_gives(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "use.py"
    file.write_text(SOURCE, "utf-8")
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert [kind.replace("builtins.", "") for kind in revealed] == REVEALED, done.stdout + done.stderr
