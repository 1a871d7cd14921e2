"""Four arms whose scores can be worked out by hand: what each signal says of them, simulated and calculated.

    pip install 'headway-torch[report]'
    python examples/bandit.py [--quick] [--figure bandit.png] [--out bandit.json]

One arm is learned quickly, one slowly, one is learned already, and one is pure noise. The real meter scores their
samples while they are learned; a calculation of means and covariances, with no samples at all, has to give the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.study.bandit import BanditConfig, expect, simulate

SIGNALS = {"curiosity": "loss", "norm": "gradient norm", "gmc": "GMC", "gmc_hard": "GMC, hard gate"}
COLOURS = ("#0067A5", "#D95F02", "#888888", "#6E1A40")
DASHES = ("solid", (0, (5, 1.5)), (0, (1.2, 1.3)), "solid")
LATE = 0.25
"""The last part of the run over which the table averages."""
BLOCK = 20
"""Batches that a point of the figure is averaged over."""


def late_means(scores: Mapping[str, Tensor], config: BanditConfig) -> dict[str, dict[str, float]]:
    """Mean score of each arm in the last quarter of the run."""
    first = round((1 - LATE) * config.steps)
    return {
        signal: {arm.name: values[first:, index].mean().item() for index, arm in enumerate(config.arms)}
        for signal, values in scores.items()
    }


def check_drawing(parser: argparse.ArgumentParser, figure: Path | None) -> None:
    """End here, and not after all the work, where a figure is asked for and matplotlib is missing."""
    if figure and importlib.util.find_spec("matplotlib") is None:
        parser.error("--figure: matplotlib is not installed; run: pip install 'headway-torch[report]'")


def draw(simulated: Mapping[str, Tensor], calculated: Mapping[str, Tensor], config: BanditConfig, path: Path) -> None:
    """A panel for each signal, a line for each arm (means over blocks of batches); circles are the calculation."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    steps = (torch.arange(config.steps // BLOCK) + 0.5) * BLOCK
    circles = torch.linspace(0.06, 0.97, 9).mul(config.steps).long()
    figure, axes = plt.subplots(1, len(SIGNALS), figsize=(9.6, 3.0), layout="constrained")
    for ax, (signal, title) in zip(axes, SIGNALS.items(), strict=True):
        for index, arm in enumerate(config.arms):
            means = simulated[signal][: len(steps) * BLOCK, index].view(-1, BLOCK).mean(1)
            ax.plot(steps, means, color=COLOURS[index], linestyle=DASHES[index], lw=1.3,
                    label=arm.name, zorder=2 + index)  # fmt: skip
            if signal in calculated:
                ax.plot(circles, calculated[signal][circles, index], "o", color=COLOURS[index], ms=3.5, mfc="white",
                        mew=0.9, zorder=8)  # fmt: skip
        ax.set(title=title, xlabel="batches", xlim=(0, config.steps), ylim=(0, 1.05))
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xticks([0, config.steps // 2, config.steps])
    axes[0].set_ylabel("score of a sample")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Simulate, calculate, print a table, draw the figure."""
    parser = argparse.ArgumentParser(description="what each signal says of four arms")
    parser.add_argument("--quick", action="store_true", help="fewer batches and copies")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, help="draw the scores over time; needs matplotlib")
    parser.add_argument("--out", type=Path, help="write the table as JSON")
    options = parser.parse_args(arguments)
    check_drawing(parser, options.figure)
    config = BanditConfig()
    if options.quick:
        config = dataclasses.replace(config, steps=800, copies=50, beta=0.98)
    torch.set_num_threads(1)
    simulated = simulate(config, torch.Generator().manual_seed(options.seed))
    calculated = expect(config)
    tables = {"simulated": late_means(simulated, config), "calculated": late_means(calculated, config)}
    print(f"{'in the last quarter':22}" + "".join(f"{arm.name:>17}" for arm in config.arms))
    for how, table in tables.items():
        for signal, scores in table.items():
            label = SIGNALS[signal] + (", calculated" if how == "calculated" else "")
            print(f"{label:22}" + "".join(f"{score:17.4f}" for score in scores.values()))
    if options.figure:
        draw(simulated, calculated, config, options.figure)
        print(f"drawn: {options.figure}")
    content = {"config": config.to_dict(), "seed": options.seed, "torch": torch.__version__, "late": tables}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    return content


if __name__ == "__main__":
    main()
