"""One figure: the time of a step as a multiple of the plain step, for each case and variant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.bench.results import CaseResult, Result
from headway.bench.tables import TITLES, provenance
from headway.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours in an order of falling lightness, so that they also differ in grey; hatches besides.
LOOKS = {
    "headway": ("#0072B2", ""),
    "torch.func": ("#E69F00", "//"),
    "opacus": ("#56B4E9", ".."),
    "backpack": ("#CCCCCC", "xx"),
}
HEIGHT = 0.8  # of the bars of one case together, where cases are 1 apart


def draw(result: Result) -> Figure:
    """Bars on a logarithmic scale that begin at 1, the plain step.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure_module, ticker = _matplotlib()
    keys = [key for key in LOOKS if any(c.timing(key) or c.why_skipped(key) for c in result.cases)]
    figure: Figure = figure_module.Figure(figsize=(7.2, 0.6 + 0.95 * len(result.cases) + 0.5), layout="constrained")
    axes = figure.subplots()
    for place, case in enumerate(result.cases):
        _bars(axes, place, case, keys)
    _scale(axes, result, ticker)
    handles = [_handle(key) for key in keys]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(keys), frameon=False, fontsize=9)
    return figure
