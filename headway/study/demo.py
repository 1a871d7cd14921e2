"""The study in small: digits, both conditions, six signals, a few seeds, and a table of what came out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from headway.runs import RunSpec, RunStore
from headway.study.controlled import specs
from headway.study.image_environment import CONDITIONS
from headway.study.protocols.controlled import Protocol
from headway.study.protocols.names import GROUPS
from headway.study.signals import SIX

Compare: TypeAlias = Callable[[Sequence[float], Sequence[float]], tuple[float, float, float]]
"""The ratio of the means of two signals' areas, seed by seed, with the ends of its 95% interval."""
LAST_PART = 0.1
"""The part of the epochs, at the end, over which shares of draws are averaged."""


def demo_specs(seeds: int = 3) -> list[RunSpec]:
    """The runs of the demo."""
    return specs(["digits"], CONDITIONS, SIX, range(seeds), Protocol.demo())


@dataclass(frozen=True)
class Line:
    """What one signal did in one condition.

    Attributes:
        condition: the condition.
        signal: the signal.
        ratio: mean area under its test-loss curves relative to that under Uniform's.
        low: lower end of the ratio's 95% interval.
        high: upper end.
        shares: share of its last draws in each group.
    """

    condition: str
    signal: str
    ratio: float
    low: float
    high: float
    shares: tuple[float, ...]


def summarise(store: RunStore, runs: Sequence[RunSpec], compare: Compare) -> list[Line]:
    """One line per condition and signal.

    Args:
        store: where the runs are.
        runs: the runs, all done.
        compare: gives ratios their intervals.
    """
    areas: dict[tuple[str, str], dict[int, float]] = {}
    shares: dict[tuple[str, str], list[list[float]]] = {}
    for spec in runs:
        columns = store.metrics(spec.run_id)
        key = (spec.condition, spec.method)
        areas.setdefault(key, {})[spec.seed] = math.fsum(cast(list[float], columns["test_loss_mean"]))
        draws = cast(list[list[float]], columns["draw_share"])
        shares.setdefault(key, []).append(_group_shares(draws, spec.condition))
    lines = []
    for (condition, signal), by_seed in areas.items():
        ratio, low, high = compare(list(by_seed.values()), [areas[condition, "uniform"][seed] for seed in by_seed])
        average = tuple(math.fsum(column) / len(column) for column in zip(*shares[condition, signal], strict=True))
        lines.append(Line(condition, signal, ratio, low, high, average))
    return sorted(lines, key=lambda line: (CONDITIONS.index(line.condition), SIX.index(line.signal)))


def _group_shares(rows: Sequence[Sequence[float]], condition: str) -> list[float]:
    """Shares of draws by group over the last part of the epochs."""
    last = rows[-max(1, round(len(rows) * LAST_PART)) :]
    by_arm = [math.fsum(column) / len(last) for column in zip(*last, strict=True)]
    if condition == "noise":
        return by_arm
    return [math.fsum(by_arm[arm] for arm in group) for group in GROUPS]


def conclusion(lines: Sequence[Line]) -> str:
    """What the noise condition shows, in a sentence with its numbers."""
    by_signal: Mapping[str, Line] = {line.signal: line for line in lines if line.condition == "noise"}
    curiosity, gmc = by_signal["curiosity"], by_signal["gmc"]
    if gmc.low <= 1 <= gmc.high:
        against_uniform = "not to be told apart from uniform here"
    else:
        against_uniform = "better than uniform" if gmc.ratio < 1 else "worse than uniform"
    drawn = "not drawn to noise" if gmc.shares[3] < 0.35 else "drawn to noise too"  # uniform would be 0.25
    return (
        f"Group D has the noisiest labels. Curiosity, the reward for surprise, spends {curiosity.shares[3]:.0%} of its "
        f"last draws there, at {curiosity.ratio:.2f} times the loss area of uniform sampling (lower is better). GMC "
        f"spends {gmc.shares[3]:.0%} there and {gmc.shares[0]:.0%} on the clean group A, at {gmc.ratio:.2f} times: "
        f"{drawn}, and {against_uniform}."
    )
