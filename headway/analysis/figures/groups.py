"""What a signal learns and what it visits: test loss of every group over the group's share of the draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis.figures.curves import draw_band, fit, percent
from headway.analysis.figures.style import GROUPS, INK, PALE, Look
from headway.analysis.summaries import Band

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Column:
    """What one signal did.

    Attributes:
        title: the signal's name.
        losses: test loss of each group over epochs.
        shares: share of the draws of an arm, from 0 to 1, averaged over the arms of each group.
        peaks: the epoch at which the visits of each group peak, NaN for one without a peak; None marks none.
        mean: test loss over all groups.
    """

    title: str
    losses: Sequence[Band]
    shares: Sequence[Band]
    peaks: Sequence[float] | None = None
    mean: Band | None = None


def group_panels(
    axes: Any,
    columns: Sequence[Column],
    arm: str = "class",
    uniform: float | None = None,
    least: Sequence[float] = (),
    looks: Sequence[Look] = GROUPS,
) -> Any:
    """Two rows of panels, one column for each signal: test losses above, training allocation below.

    Args:
        axes: an array of axes [2, signals].
        columns: what each signal did.
        arm: what an arm is: "class" or "group".
        uniform: the share of an arm under uniform sampling, shown as a line.
        least: the least loss that each group can have, where noise keeps it above zero.
        looks: how the groups are shown, and what they are called.

    Returns:
        the axes.
    """
    for place, column in enumerate(columns):
        group_losses(axes[0, place], column.losses, least, looks)
        if column.mean is not None:
            axes[0, place].plot(column.mean.x, column.mean.mean, label=MEAN, zorder=4, **MEAN_LOOK)
        allocation(axes[1, place], column.shares, uniform=uniform, looks=looks)
        axes[0, place].set_title(column.title)
        axes[1, place].set_xlabel("epoch")
    align_rows(axes)
    if any(column.peaks is not None for column in columns):
        for ax, column in zip(axes[1], columns, strict=True):
            _make_room(ax)
            mark_peaks(ax, column.shares, column.peaks or (), looks)
    axes[0, 0].set_ylabel("test loss (nats)")
    axes[1, 0].set_ylabel(f"draws per {arm} (%)")
    return axes


def group_losses(ax: Axes, losses: Sequence[Band], least: Sequence[float] = (), looks: Sequence[Look] = GROUPS) -> Axes:
    """Test loss of each group.

    Args:
        ax: where to draw.
        losses: a curve over epochs for each group.
        least: the least loss that each group can have; shown as thin lines unless it is zero.
        looks: how the groups are shown.
    """
    for look, loss in zip(looks, least, strict=False):
        if loss > 0:
            ax.axhline(loss, color=look.colour, linewidth=0.6, alpha=0.7, zorder=1)
    return _groups(ax, losses, looks)


def allocation(
    ax: Axes,
    shares: Sequence[Band],
    peaks: Sequence[float] | None = None,
    uniform: float | None = None,
    looks: Sequence[Look] = GROUPS,
) -> Axes:
    """Share of the draws that go to each group, with an arrow at the peak of its visits.

    Args:
        ax: where to draw.
        shares: a curve over epochs for each group, from 0 to 1.
        peaks: the epoch of each peak; None marks none.
        uniform: the share under uniform sampling, shown as a line.
        looks: how the groups are shown.
    """
    if uniform is not None:
        ax.axhline(100 * uniform, color=PALE, linewidth=0.8, zorder=1)
    _groups(ax, [percent(band) for band in shares], looks)
    if peaks is not None:
        _make_room(ax)
        mark_peaks(ax, shares, peaks, looks)
    return ax


def mark_peaks(ax: Axes, shares: Sequence[Band], peaks: Sequence[float], looks: Sequence[Look] = GROUPS) -> None:
    """An arrow to each curve at its peak, from the name of the group at the top of the panel.

    Args:
        ax: a panel of `allocation`, with its final limits.
        shares: the curves, from 0 to 1.
        peaks: the epoch of each peak; NaN for none.
        looks: how the groups are shown.
    """
    marks = []
    for look, band, peak in zip(looks, shares, peaks, strict=False):
        if not np.isfinite(peak):
            continue
        place = int(np.argmin(np.abs(band.x - peak)))
        if np.isfinite(band.mean[place]):
            marks.append((float(band.x[place]), 100 * float(band.mean[place]), look))
    marks.sort(key=lambda mark: mark[0])
    left, right = ax.get_xlim()
    width = MARGIN + LETTER * max((len(look.name) for look in looks), default=0)
    names = spread([(x - left) / (right - left) for x, _, _ in marks], width)
    for name, (x, y, look) in zip(names, marks, strict=True):
        ax.annotate(
            look.name,
            (x, y),
            (name, 0.985),
            textcoords="axes fraction",
            ha="center",
            va="top",
            fontsize=7,
            weight="bold",
            color=INK,
            arrowprops={"arrowstyle": "-|>", "color": look.colour, "linewidth": 0.75, "shrinkA": 1, "shrinkB": 2},
            zorder=6,
        )


MEAN = "mean"
MEAN_LOOK: dict[str, Any] = {"color": INK, "linewidth": 1.0, "linestyle": (0, (5, 2))}
"""How the mean over groups is drawn."""

LETTER = 0.045
"""Width of a letter, as a part of a panel."""

MARGIN = 0.04
"""Room between two names, as a part of a panel."""


def spread(places: Sequence[float], room: float) -> list[float]:
    """Move places apart, as little as needed for names of this width: sorted in [0, 1] -> sorted in [0, 1]."""
    found: list[float] = []
    for place in places:
        found.append(max(place, room / 2, found[-1] + room if found else 0.0))
    limit = 1 - room / 4
    for number in reversed(range(len(found))):
        found[number] = min(found[number], limit)
        limit = found[number] - room
    return found


def _make_room(ax: Axes) -> None:
    """Leave room above the curves, for the names and their arrows."""
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + 0.28 * (top - bottom))
    ax.set_yticks([tick for tick in ax.get_yticks() if 0 <= tick <= top])


def align_rows(axes: Any) -> None:
    """Give the panels of a row the same vertical range, and write its numbers once."""
    for row in axes:
        ends = [ax.get_ylim() for ax in row]
        low, high = min(end[0] for end in ends), max(end[1] for end in ends)
        for place, ax in enumerate(row):
            ax.set_ylim(low, high)
            ax.tick_params(labelleft=place == 0)
    for ax in axes[:-1].flat:
        ax.tick_params(labelbottom=False)


def _groups(ax: Axes, bands: Sequence[Band], looks: Sequence[Look]) -> Axes:
    for turn, (look, band) in enumerate(zip(looks, bands, strict=True)):
        draw_band(ax, band, look, turn, len(looks))
    return fit(ax, bands)
