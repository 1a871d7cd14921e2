"""Curves over training with their bands: average test loss, episode return, telemetry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis.columns import Array
from headway.analysis.figures.style import METHODS, PALE, SIGNALS, Look, looks_for
from headway.analysis.summaries import Band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = 5
"""Markers on a curve; curves take turns, so that those of two curves do not cover each other."""
BAND_ALPHA = 0.2
SINGLE_ALPHA = 0.5
FEW_RUNS = 5
"""Exploration runs differ so much that with fewer seeds intervals fill a panel: the single runs are drawn instead."""


def draw_band(ax: Axes, band: Band, look: Look, turn: int = 0, turns: int = 1, few: int = 0) -> Axes:
    """Draw a mean with its interval; without an interval where it is not known (a single seed).

    Args:
        ax: where to draw.
        band: the curve.
        look: how it looks; its name becomes the label.
        turn: the place of this curve among those of the panel, which decides where its markers are.
        turns: how many curves the panel has.
        few: with fewer seeds than this, the single curves are drawn instead of the interval.
    """
    known = np.isfinite(band.low) & np.isfinite(band.high)
    singles = _singles(band, few)
    if singles is not None:
        for single in singles[np.isfinite(singles).any(1)] if band.n > 1 else ():
            ax.plot(band.x, single, color=look.colour, alpha=SINGLE_ALPHA, linewidth=0.5, zorder=2)
    elif known.any():
        ax.fill_between(
            band.x, band.low, band.high, where=known, color=look.colour, alpha=BAND_ALPHA, linewidth=0, zorder=2
        )
    ax.plot(
        band.x,
        band.mean,
        color=look.colour,
        linestyle=look.dash,
        marker=look.marker,
        markevery=marker_places(len(band.x), turn, turns),
        markeredgecolor=look.colour if look.marker == "x" else "white",
        markeredgewidth=0.9 if look.marker == "x" else 0.4,
        markersize=5.2 if look.marker == "*" else None,
        dash_capstyle="butt",
        label=look.name,
        zorder=3,
    )
    return ax


def marker_places(length: int, turn: int, turns: int) -> list[int]:
    """The points of a curve that carry a marker: a few, evenly spread, at other places for each turn."""
    if length <= MARKERS:
        return list(range(length))
    step = length / MARKERS
    return sorted({min(length - 1, int(step * (i + (turn + 0.5) / turns))) for i in range(MARKERS)})


def _singles(band: Band, few: int) -> Array | None:
    """The single curves, if they are drawn instead of the interval."""
    return band.singles if band.n < few else None


def draw_bands(
    ax: Axes, bands: Mapping[str, Band], known: Mapping[str, Look], *, from_zero: bool = True, few: int = 0
) -> Axes:
    """Draw several curves, each with the look of its key.

    Args:
        ax: where to draw.
        bands: the curves by key.
        known: the looks that there are, and their order.
        from_zero: let the vertical axis begin at zero, unless a mean is below it; otherwise it does so only where an
            interval alone reaches below zero.
        few: with fewer seeds than this, the single curves are drawn instead of the intervals.
    """
    looks = looks_for(bands, known)
    for turn, (key, look) in enumerate(looks.items()):
        draw_band(ax, bands[key], look, turn, len(looks), few)
    fit(ax, bands.values(), from_zero=from_zero, few=few)
    return ax


def fit(ax: Axes, bands: Iterable[Band], *, from_zero: bool = True, few: int = 0) -> Axes:
    """Set the limits so that the curves fill the panel. An interval may be cut off, a mean never is."""
    bands = list(bands)
    xs = np.concatenate([band.x for band in bands] or [np.array([0.0, 1.0])])
    ax.set_xlim(*training_range(float(xs.min()), float(xs.max())))
    low, high = vertical_range(bands, few)
    bottom, top = padded(low, high, 0.05)
    lowest = min((np.nanmin(band.mean) for band in bands if np.isfinite(band.mean).any()), default=0.0)
    if lowest >= 0 and (from_zero or bottom < 0):  # an interval of two seeds may reach below zero, where no loss is
        bottom = -0.015 * top  # a line at zero shows in its full width
    ax.set_ylim(bottom, top)
    return ax


def vertical_range(bands: Iterable[Band], few: int = 0) -> tuple[float, float]:
    """The range that the curves take up, single ones too where they are drawn.

    Intervals count as far as they reach no farther from the means than the means themselves spread, or half
    their own height: three seeds can have an interval that would flatten everything else.
    """
    bands = list(bands)
    singles = [drawn for band in bands if (drawn := _singles(band, few)) is not None]
    means = _finite([*(band.mean for band in bands), *singles])
    if not len(means):
        return 0.0, 1.0
    low, high = float(means.min()), float(means.max())
    slack = max(high - low, abs(high) / 2)
    ends = _finite([end for band in bands if _singles(band, few) is None for end in (band.low, band.high)])
    if len(ends):
        low = min(low, max(float(ends.min()), low - slack))
        high = max(high, min(float(ends.max()), high + slack))
    return low, high


def training_range(first: float, last: float) -> tuple[float, float]:
    """The horizontal range of training: from zero if the first point is near it, with some room after the last."""
    start = 0.0 if 0 <= first <= 0.1 * last else first
    return padded(start, last, 0.0) if last <= start else (start, last + 0.025 * (last - start))


def padded(low: float, high: float, share: float) -> tuple[float, float]:
    """A range with some room on both sides, and never of no width."""
    if high <= low:
        return low - 0.5, high + 0.5
    room = share * (high - low)
    return low - room, high + room


def average_loss(ax: Axes, bands: Mapping[str, Band], title: str = "") -> Axes:
    """Test loss averaged over all arms, for every signal.

    Args:
        ax: where to draw.
        bands: curves over epochs by signal.
        title: above the panel.
    """
    draw_bands(ax, bands, SIGNALS, from_zero=False)
    ax.set_title(title)
    ax.set_xlabel("epoch")
    ax.set_ylabel("test loss (nats)")
    return ax


def reward_curves(ax: Axes, bands: Mapping[str, Band], title: str = "") -> Axes:
    """Mean episode return of exploration methods.

    Args:
        ax: where to draw.
        bands: curves over environment steps by method.
        title: above the panel.
    """
    draw_bands(ax, bands, METHODS, few=FEW_RUNS)
    ax.set_title(title)
    ax.set_ylabel("episode return")
    step_axis(ax)
    return ax


def under_floor(ax: Axes, bands: Mapping[str, Band], title: str = "") -> Axes:
    """Share of the parameters whose second moment lies under the floor, in percent.

    Args:
        ax: where to draw.
        bands: shares from 0 to 1 over epochs by signal.
        title: above the panel.
    """
    draw_bands(ax, {key: percent(band) for key, band in bands.items()}, SIGNALS)
    ax.set_ylim(0, 104)
    ax.set_yticks([0, 25, 50, 75, 100])
    ax.set_title(title)
    ax.set_xlabel("epoch")
    ax.set_ylabel("parameters under\nthe floor (%)")
    return ax


def policy_entropy(ax: Axes, bands: Mapping[str, Band], arms: int | None = None, title: str = "") -> Axes:
    """Entropy of the actor's policy, with a line at the entropy of the uniform one.

    Args:
        ax: where to draw.
        bands: entropies in nats over epochs by signal.
        arms: how many arms there are; None draws no line.
        title: above the panel.
    """
    draw_bands(ax, bands, SIGNALS, from_zero=False)
    if arms:
        highest = math.log(arms)
        low = min(ax.get_ylim()[0], 0.9 * highest)
        low = 0.0 if low < 0.4 * highest else low
        ax.set_ylim(low, highest + 0.16 * (highest - low))
        ax.axhline(highest, color=PALE, linewidth=0.8, zorder=1)
        note(ax, f"uniform: ln {arms}", highest)
    ax.set_title(title)
    ax.set_xlabel("epoch")
    ax.set_ylabel("policy entropy (nats)")
    return ax


def note(ax: Axes, text: str, y: float) -> None:
    """A remark above a horizontal line, at the right end of the panel."""
    where: Any = ax.get_yaxis_transform()
    ax.annotate(
        text,
        (1, y),
        (0, 1.5),
        xycoords=where,
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=7,
        color=PALE,
    )


def step_axis(ax: Axes) -> None:
    """Name a horizontal axis of environment steps and write its numbers in thousands or millions."""
    from matplotlib.ticker import FuncFormatter

    longest = max(abs(end) for end in ax.get_xlim())
    unit, name = next(((u, n) for u, n in ((1e6, "million "), (1e3, "thousand ")) if longest >= u), (1.0, ""))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:g}"))
    ax.set_xlabel(f"environment steps ({name.strip()})" if name else "environment steps")


def percent(band: Band) -> Band:
    """A share from 0 to 1 in percent; its interval ends where shares do."""
    low, high = (100 * np.clip(end, 0, 1) for end in (band.low, band.high))
    known = np.isfinite(band.low) & np.isfinite(band.high)
    singles = None if band.singles is None else 100 * band.singles
    ends = np.where(known, low, band.low), np.where(known, high, band.high)
    return Band(band.x, 100 * band.mean, *ends, band.n, singles)


def _finite(arrays: Iterable[Any]) -> Any:
    values = np.concatenate([np.ravel(array) for array in arrays] or [np.empty(0)])
    return values[np.isfinite(values)]
