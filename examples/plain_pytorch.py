"""Plain PyTorch: a sampler that follows the scores, telemetry, and a checkpoint in the midst of an epoch.

    pip install . numpy        # in a clone
    python examples/plain_pytorch.py [--quick] [--csv sources.csv] [--out shares.json]

Three sources: handwritten digits, a rule on random inputs that takes longer to learn, and noise. The ten lines in
`train` that differ from a usual training loop are marked.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset

import headway
from headway.data import load
from headway.selection import Sources, SourceSampler, Tagged
from headway.telemetry import CsvWriter

INPUTS, CLASSES, BATCH = 65, 10, 64


class Noise(Dataset[tuple[Tensor, Tensor]]):
    """Random inputs with labels that are drawn anew each time.

    Args:
        samples: how many.
        generator: draws them.
    """

    def __init__(self, samples: int, generator: torch.Generator) -> None:
        """Draw the inputs."""
        self._x = with_mark(torch.randn(samples, INPUTS - 1, generator=generator), 4.0)
        self._generator = generator

    def __len__(self) -> int:
        """The number of inputs."""
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """An input, and any label."""
        return self._x[index], torch.randint(CLASSES, (), generator=self._generator)


def with_mark(x: Tensor, mark: float) -> Tensor:
    """Inputs [N, 64] with one more number that tells where they come from: [N, 65]."""
    return torch.cat([x, torch.full((len(x), 1), mark)], dim=1)


def make_parts(generator: torch.Generator) -> dict[str, Dataset[tuple[Tensor, Tensor]]]:
    """The three sources."""
    images = load("digits").train
    digits = with_mark(torch.from_numpy(images.floats()).flatten(1) * 2 - 1, -4.0)
    x = torch.randn(20_000, INPUTS - 1, generator=generator)
    weights = torch.randn(INPUTS - 1, CLASSES, generator=generator)
    rule = TensorDataset(with_mark(x, 0.0), (x.clamp(min=0) @ weights).argmax(1))
    return {
        "digits": TensorDataset(digits, torch.from_numpy(images.labels)),
        "rule": rule,
        "noise": Noise(5_000, generator),
    }


def train(steps: int, csv: Path | None, checkpoint: Path | None = None) -> dict[str, float]:
    """Train a perceptron on the sources; returns their shares at the end."""
    torch.manual_seed(0)
    parts = make_parts(torch.Generator().manual_seed(0))
    sources = Sources.joined(parts)  # 1
    sampler = SourceSampler(sources, floor=0.02, num_samples=steps * BATCH)  # 2
    data = Tagged(ConcatDataset(parts.values()), sources)  # 3
    loader = DataLoader(data, BATCH, sampler=sampler)  # 4
    model = nn.Sequential(nn.Linear(INPUTS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    meter = headway.Meter(model, [headway.GMC(), headway.NormAll()])  # 5
    monitor = headway.SourceMonitor(sources.names, writers=[CsvWriter(csv)] if csv else [])  # 6
    for step, (x, y, source) in enumerate(loader, 1):  # 7
        losses = F.cross_entropy(model(x), y, reduction="none")
        scores = meter.backward(losses)  # 8, in place of losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        sampler.update(source, scores["gmc"])  # 9
        monitor.update(source, scores, losses)  # 10
        if step % max(1, steps // 5) == 0:
            states = ", ".join(f"{name} {share:.0%} {monitor.states[name]}" for name, share in sampler.weights.items())
            print(f"{step:6} batches: {states}", flush=True)
        if checkpoint is not None and step == steps // 2:  # resume: load_state_dict of each, and iterate again
            whole = {"model": model, "optimizer": optimizer, "meter": meter, "sampler": sampler, "monitor": monitor}
            torch.save({name: part.state_dict() for name, part in whole.items()}, checkpoint)
    monitor.close()
    return sampler.weights


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description="a sampler and telemetry in a plain training loop")
    parser.add_argument("--quick", action="store_true", help="300 batches")
    parser.add_argument("--steps", type=int, default=2000, help="batches")
    parser.add_argument("--csv", type=Path, help="write telemetry here")
    parser.add_argument("--checkpoint", type=Path, help="save the state here, half-way")
    parser.add_argument("--out", type=Path, help="write the shares at the end as JSON")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error(f"--steps: expected at least 1, got {options.steps}")
    torch.set_num_threads(1)
    start, steps = time.perf_counter(), 300 if options.quick else options.steps
    shares = train(steps, options.csv, options.checkpoint)
    print(f"{time.perf_counter() - start:.0f} s")
    if options.out:
        content = {"steps": steps, "batch": BATCH, "torch": torch.__version__, "shares": shares}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    return shares


if __name__ == "__main__":
    main()
