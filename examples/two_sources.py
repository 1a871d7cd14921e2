"""Two sources, one that can be learned and one that is noise: what does each signal spend its samples on?

    pip install 'headway-torch[report]'
    python examples/two_sources.py [--quick] [--seeds 5] [--figure two_sources.png] [--out two_sources.json]

Half of the dataset follows a rule. The other half lies elsewhere in the space of inputs, and its labels are drawn anew
each time: it is a noisy television. A sampler chooses between them by one signal. The loss goes where it stays high,
and that is the noise; gradient-momentum coupling goes where the model is getting somewhere.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import headway
from headway.selection import Sources, SourceSampler, Tagged

INPUTS, CLASSES, BATCH, PER_SOURCE = 20, 5, 64, 50_000
SIGNALS = {"uniform": headway.Uniform(), "loss": headway.Curiosity(), "gmc": headway.GMC(beta=0.99)}
COLOURS = {"uniform": "#777777", "loss": "#c2410c", "gmc": "#1d4ed8"}


class RuleAndNoise(Dataset[tuple[Tensor, Tensor]]):
    """The first half follows a rule; the labels of the second half are drawn anew each time.

    Args:
        seed: of inputs, rule and labels.
    """

    def __init__(self, seed: int) -> None:
        """Draw the inputs, and the labels of the first half."""
        self._generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(2 * PER_SOURCE, INPUTS, generator=self._generator)
        rule = torch.randn(2, INPUTS, 2 * CLASSES, generator=self._generator)
        hidden = torch.tanh(self.x @ rule[0])
        self.y = (hidden @ torch.randn(2 * CLASSES, CLASSES, generator=self._generator)).argmax(1)
        self.x[:PER_SOURCE, 0], self.x[PER_SOURCE:, 0] = -4.0, 4.0  # the two halves do not overlap

    def __len__(self) -> int:
        """The samples of both halves."""
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """An input and its label."""
        noisy = index >= PER_SOURCE
        label = torch.randint(CLASSES, (), generator=self._generator) if noisy else self.y[index]
        return self.x[index], label


def run(signal: str, seed: int, steps: int) -> dict[str, Any]:
    """Train a small model on what a signal chooses.

    Returns:
        The share of the noise over time, that of the whole run, and the accuracy on the rule at the end.
    """
    torch.manual_seed(seed)
    data = RuleAndNoise(seed)
    sampler = SourceSampler(
        Sources.joined({"rule": PER_SOURCE, "noise": PER_SOURCE}), seed=seed, num_samples=steps * BATCH
    )
    loader = DataLoader(Tagged(data, sampler.sources), BATCH, sampler=sampler)
    model = nn.Sequential(nn.Linear(INPUTS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    meter = headway.Meter(model, SIGNALS[signal])
    over_time = []
    for x, y, source in loader:
        losses = F.cross_entropy(model(x), y, reduction="none")
        sampler.update(source, meter.backward(losses))
        optimizer.step()
        optimizer.zero_grad()
        over_time.append(sampler.weights["noise"])
    fresh = RuleAndNoise(seed)
    with torch.no_grad():
        right = model(fresh.x[:10_000]).argmax(1) == fresh.y[:10_000]
    spent = sampler.counts["noise"] / sum(sampler.counts.values())
    return {"over_time": over_time, "noise_share": spent, "accuracy": right.double().mean().item()}


def check_drawing(parser: argparse.ArgumentParser, figure: Path | None) -> None:
    """End here, and not after all the work, where a figure is asked for and matplotlib is missing."""
    if figure and importlib.util.find_spec("matplotlib") is None:
        parser.error("--figure: matplotlib is not installed; run: pip install 'headway-torch[report]'")


def draw(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """The share of the noise over time: the mean over seeds, and their range."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for signal, runs in results.items():
        curves = torch.tensor([one["over_time"] for one in runs])
        steps = range(1, curves.shape[1] + 1)
        ax.plot(steps, curves.mean(0), color=COLOURS[signal], label=signal)
        ax.fill_between(steps, curves.amin(0), curves.amax(0), color=COLOURS[signal], alpha=0.15, linewidth=0)
        ax.annotate(signal, (curves.shape[1], float(curves[:, -1].mean())), xytext=(4, 0), textcoords="offset points",
                    va="center", color=COLOURS[signal])  # fmt: skip
    ax.set(xlabel="batches", ylabel="share of the noise", ylim=(0, 1), xlim=(0, None))
    ax.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Run all signals, print a table, draw the figure."""
    parser = argparse.ArgumentParser(description="what each signal spends its samples on")
    parser.add_argument("--quick", action="store_true", help="one seed and 400 batches")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500, help="batches of each run")
    parser.add_argument("--figure", type=Path, help="draw the shares over time; needs matplotlib")
    parser.add_argument("--out", type=Path, help="write the figures of the table as JSON")
    options = parser.parse_args(arguments)
    check_drawing(parser, options.figure)
    seeds, steps = (1, 400) if options.quick else (options.seeds, options.steps)
    torch.set_num_threads(1)
    start = time.perf_counter()
    results: dict[str, list[dict[str, Any]]] = {}
    print(f"{'signal':8}  spent on the noise   accuracy on the rule")
    for signal in SIGNALS:
        results[signal] = [run(signal, seed, steps) for seed in range(seeds)]
        share, accuracy = (statistics.fmean(one[key] for one in results[signal]) for key in ("noise_share", "accuracy"))
        print(f"{signal:8}  {share:18.1%}  {accuracy:20.1%}", flush=True)
    print(f"{seeds} seeds, {steps} batches of {BATCH} each, {time.perf_counter() - start:.0f} s")
    if options.figure:
        draw(results, options.figure)
        print(f"drawn: {options.figure}")
    if options.out:
        kept = {
            signal: {key: [one[key] for one in runs] for key in ("noise_share", "accuracy")}
            for signal, runs in results.items()
        }
        content = {"seeds": seeds, "steps": steps, "batch": BATCH, "torch": torch.__version__, "signals": kept}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    return results


if __name__ == "__main__":
    main()
