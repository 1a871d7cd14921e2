"""One figure: the time of a step as a multiple of the plain step, for each case and variant."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.cost.results import CaseResult, Result
from benchmarks.cost.tables import TITLES, provenance
from headway.errors import MissingExtraError

# Colour, hatch and its colour. Four steps of lightness that differ in grey, from a palette that is safe for the
# colour-blind; the hatches tell them apart a second time.
LOOKS = {
    "headway": ("#0B3C5D", "", "white"),
    "torch.func": ("#D55E00", "////", "#F3B58A"),
    "opacus": ("#56B4E9", "....", "#1B6A9C"),
    "backpack": ("#E4E1D6", "xxxx", "#A39E8C"),
}
INK, PALE = "#222222", "#777777"


def draw(result: Result) -> Any:
    """Horizontal bars on a logarithmic scale that begin at 1, the plain step.

    Returns:
        A matplotlib Figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require()
    cases = [case for case in result.cases if case.timings]
    keys = [key for key in LOOKS if any(c.timing(key) or c.why_skipped(key) for c in cases)]
    with import_module("matplotlib").rc_context({"font.size": 9, "hatch.linewidth": 0.6}):
        size = (7.5, 1.15 + 0.2 * (len(keys) + 1) * len(cases))
        figure = import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        _frame(axes, cases)
        for place, case in enumerate(cases):
            _group(axes, place, case, keys)
        handles = [_patch(key) for key in keys]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(keys), frameon=False, handlelength=1.6)
        figure.supxlabel(provenance(result.machine), fontsize=6.5, color=PALE)
        figure.canvas.draw()  # lays out and hatches by the settings above
    return figure


def save(result: Result, stem: Path) -> list[Path]:
    """Draw the figure and store it as SVG and PNG; equal results give equal files.

    Args:
        result: what to draw.
        stem: the path without the ending.

    Returns:
        The paths of both files.
    """
    figure = draw(result)
    paths = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
    with import_module("matplotlib").rc_context({"svg.hashsalt": "headway", "hatch.linewidth": 0.6}):
        figure.savefig(paths[0], metadata={"Date": None})
        figure.savefig(paths[1], dpi=200, metadata={"Software": None})
    return paths


def require() -> None:
    """Make sure that figures can be drawn.

    Raises:
        MissingExtraError: matplotlib is not installed; the message has the command that installs it.
    """
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError("matplotlib", "bench") from error


def _group(axes: Any, place: int, case: CaseResult, keys: Sequence[str]) -> None:
    """The bars of one case, with their numbers; a word in place of a bar that is missing."""
    height = 0.8 / len(keys)
    for number, key in enumerate(keys):
        y = place + (number - (len(keys) - 1) / 2) * height
        timing = case.timing(key)
        if timing is None:
            reason = case.why_skipped(key)
            missing = "not measured" if reason is None or "not installed" in reason else "not supported"
            axes.text(1.04, y, f"{TITLES[key]}: {missing}", va="center", fontsize=7.5, style="italic", color=PALE)
            continue
        colour, hatch, lines = LOOKS[key]
        ratio = timing.ratio
        shape = {"left": 1, "height": 0.88 * height, "linewidth": 0}
        axes.barh(y, ratio.median - 1, color=colour, hatch=hatch, edgecolor=lines, **shape)
        for width, colour in ((2.6, "white"), (1.2, INK)):  # an outline, to be seen on the dark bar too
            axes.plot([ratio.low, ratio.high], [y, y], color=colour, linewidth=width, solid_capstyle="butt")
        weight = "bold" if key == "headway" else "normal"
        label = f"{ratio.median:.2f}" if ratio.median < 10 else f"{ratio.median:.0f}"
        end = max(ratio.median, ratio.high)
        axes.annotate(
            label, (end, y), (4, 0), textcoords="offset points", va="center", fontsize=8, weight=weight, color=INK
        )


def _frame(axes: Any, cases: Sequence[CaseResult]) -> None:
    """A logarithmic axis with plain numbers, a name for each case, and a line at the plain step."""
    ratios = [timing.ratio for case in cases for timing in case.timings if timing.variant in LOOKS]
    low = min((ratio.low for ratio in ratios), default=1.0)
    top = max((ratio.high for ratio in ratios), default=1.0)
    axes.set_xscale("log")
    axes.set_xlim(1.0 if low >= 1 else 0.95 * low, max(2.5, 1.6 * top))
    axes.axvline(1, color=INK, linewidth=1.2)
    ticks = [t for t in (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000) if t <= max(2.0, 1.6 * top)]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("time of a training step, as a multiple of the plain step (short lines: quartiles)")
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_yticks(range(len(cases)), [_name(case) for case in cases], linespacing=1.35)
    axes.tick_params(length=0, colors=INK)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _name(case: CaseResult) -> str:
    """Three lines: what it is, in two parts where there are two, and the batch size."""
    kind, _, details = case.title.partition(", ")
    return "\n".join(filter(None, (f"({case.key}) {kind}", details, f"batch {case.batch}")))


def _patch(key: str) -> Any:
    colour, hatch, lines = LOOKS[key]
    patch = import_module("matplotlib.patches").Patch
    return patch(facecolor=colour, hatch=hatch, edgecolor=lines, linewidth=0, label=TITLES[key])
