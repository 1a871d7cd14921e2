"""Lightning: a callback that scores the samples, drives the sampler, and is in the checkpoint.

    pip install 'headway-torch[lightning]'
    python examples/lightning_sources.py [--quick] [--csv sources.csv]

The module differs from a usual one in what `training_step` returns: one loss per sample, and where it came from.
Training is stopped half-way and resumed from its checkpoint by another Trainer.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import headway
from headway.integrations.lightning import SourceCallback
from headway.selection import Sources, SourceSampler, Tagged
from headway.telemetry import CsvWriter

INPUTS, CLASSES, PER_SOURCE, BATCH = 20, 5, 20_000, 64


class RuleAndNoise(Dataset[tuple[Tensor, Tensor]]):
    """The first half follows a rule; the labels of the second half, which lies elsewhere, are drawn anew each time."""

    def __init__(self) -> None:
        """Draw inputs, and the labels of the first half."""
        generator = torch.Generator().manual_seed(0)
        self._x = torch.randn(2 * PER_SOURCE, INPUTS, generator=generator)
        self._y = (self._x.clamp(min=0) @ torch.randn(INPUTS, CLASSES, generator=generator)).argmax(1)
        self._x[:PER_SOURCE, 0], self._x[PER_SOURCE:, 0] = -4.0, 4.0

    def __len__(self) -> int:
        """The samples of both halves."""
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """An input and its label."""
        return self._x[index], torch.randint(CLASSES, ()) if index >= PER_SOURCE else self._y[index]


class Classifier(LightningModule):
    """A perceptron that hands out its losses one by one."""

    def __init__(self) -> None:
        """Make the network."""
        super().__init__()
        self.net = nn.Sequential(nn.Linear(INPUTS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> dict[str, Tensor]:
        """One loss per sample, and the source of each; their mean is what is trained."""
        x, y, source = batch
        losses = F.cross_entropy(self.net(x), y, reduction="none")
        return {"losses": losses, "source": source}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), 1e-3)


def fit(folder: Path, steps: int, epochs: int, csv: Path | None, checkpoint: Path | None = None) -> SourceSampler:
    """Train for some epochs, from a checkpoint if there is one, and leave one behind."""
    seed_everything(0, verbose=False)
    sampler = SourceSampler(Sources.joined({"rule": PER_SOURCE, "noise": PER_SOURCE}), num_samples=steps * BATCH)
    monitor = headway.SourceMonitor(sampler.sources.names, writers=[CsvWriter(csv)] if csv else [])
    callback = SourceCallback([headway.GMC(), headway.NormAll()], sampler=sampler, monitor=monitor)
    trainer = Trainer(
        max_epochs=epochs,
        callbacks=[callback],
        use_distributed_sampler=False,  # the sampler shares its indices among processes itself
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    loader = DataLoader(Tagged(RuleAndNoise(), sampler.sources), BATCH, sampler=sampler)
    trainer.fit(Classifier(), loader, ckpt_path=checkpoint, weights_only=True)
    trainer.save_checkpoint(folder / f"epoch-{epochs}.ckpt")
    shares = ", ".join(f"{name} {share:.0%} {monitor.states[name]}" for name, share in sampler.weights.items())
    print(f"after {epochs} epochs: {shares}", flush=True)
    return sampler


def main(arguments: list[str] | None = None) -> SourceSampler:
    """Train one epoch, and go on from its checkpoint for another."""
    parser = argparse.ArgumentParser(description="a sampler and telemetry in a Lightning Trainer")
    parser.add_argument("--quick", action="store_true", help="150 batches per epoch")
    parser.add_argument("--steps", type=int, default=1000, help="batches per epoch")
    parser.add_argument("--csv", type=Path, help="write telemetry here")
    options = parser.parse_args(arguments)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    start = time.perf_counter()
    settings: dict[str, Any] = {"steps": 150 if options.quick else options.steps, "csv": options.csv}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fit(folder, epochs=1, **settings)
        sampler = fit(folder, epochs=2, checkpoint=folder / "epoch-1.ckpt", **settings)
    print(f"{time.perf_counter() - start:.0f} s")
    return sampler


if __name__ == "__main__":
    main()
