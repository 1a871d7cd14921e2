"""Who watches the television: how much of the time and of the intrinsic reward goes to noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.analysis.figures.curves import FEW_RUNS, draw_bands, percent, reward_curves, step_axis
from headway.analysis.figures.style import METHODS
from headway.analysis.summaries import Band


def television(
    axes: Any,
    rewards: Mapping[str, Band],
    reward_shares: Mapping[str, Band],
    time_shares: Mapping[str, Band],
) -> Any:
    """Three panels over environment steps: what was reached, what was paid for noise, and how long it was watched.

    Args:
        axes: three axes.
        rewards: episode return by method.
        reward_shares: share of the intrinsic reward that is paid while the noise is on, from 0 to 1, by method; a
            method without an intrinsic reward has none.
        time_shares: share of the steps with the noise on, from 0 to 1, by method.

    Returns:
        the axes.
    """
    reward_curves(axes[0], rewards, "Task")
    _shares(axes[1], reward_shares, "Reward for noise", "intrinsic reward paid\nwith the noise on (%)")
    _shares(axes[2], time_shares, "Time in noise", "steps with\nthe noise on (%)")
    return axes


def _shares(ax: Any, shares: Mapping[str, Band], title: str, label: str) -> None:
    draw_bands(ax, {key: percent(band) for key, band in shares.items()}, METHODS, few=FEW_RUNS)
    ax.set_title(title)
    ax.set_ylabel(label)
    step_axis(ax)
