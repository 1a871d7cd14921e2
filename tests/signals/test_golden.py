"""Scores that the paper's released code computed, on a recorded training run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from headway import GMC, Cosine, DotProduct, Meter, NormAll, NormLast

RELEASED = [
    GMC(unit="batch"),
    DotProduct(unit="batch", over="tensor", scale=5),
    Cosine(unit="batch", over="tensor", against="m/v", scale=50),
    NormAll(unit="batch", norm="l2-squared", scale=10_000),
    NormLast(unit="batch", norm="l2-squared", part="bias", scale=100_000),
]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(16, 256), nn.Linear(256, 256), nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def test_released_choices_give_the_released_scores() -> None:
    with np.load(Path(__file__).parent.parent / "golden" / "released_scores.npz") as archive:
        golden = {key: torch.from_numpy(archive[key]) for key in archive.files}
    model = Net()
    model.load_state_dict({k.removeprefix("init."): v for k, v in golden.items() if k.startswith("init.")})
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    meter = Meter(model, RELEASED)
    for step, (x, y) in enumerate(zip(golden["x"], golden["y"], strict=True)):
        losses = F.cross_entropy(model(x), y.long(), reduction="none")
        scores = meter.backward(losses)
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(losses.detach(), golden["loss"][step], rtol=1e-5, atol=1e-6)
        for name in ("gmc", "dot", "cosine", "norm_all", "norm_last"):
            torch.testing.assert_close(
                scores[name], golden[name][step], rtol=1e-4, atol=0, msg=lambda t, n=name: f"{n}: {t}"
            )
    under = float(meter.moments("gmc").share_under(1e-8 * 32**2))
    assert 0.1 < under < 0.9  # both branches of the floor were exercised
