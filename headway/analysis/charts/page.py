"""The renderer for the page: a `Chart` as the data that `report/assets/figures.js` draws.

Curves have few digits, common positions, and nothing where there is no number. Colours are those of print, with
counterparts for a dark page.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from headway.analysis.charts.model import LINES, MAP, Chart, Panel
from headway.analysis.charts.style import Style
from headway.analysis.rundata import Array
from headway.analysis.summaries import Band

DIGITS = 5
"""Digits of a number that the page keeps; the raw data has all."""
DASH_SCALE = 1.7
"""Pixels per unit of the printed dashes, for lines of two pixels."""
_DARK_RANGE = (0.48, 0.9)

Numbers: TypeAlias = list[float | None]


def chart_data(chart: Chart) -> dict[str, Any]:
    """A chart as JSON."""
    panels = [_panel(panel, chart) for panel in chart.panels]
    items = [legend_item(key, style) for key, style in chart.styles.items()]
    data: dict[str, Any] = {
        "id": chart.id,
        "title": chart.title,
        "kind": "lines" if chart.kind == LINES else "dots",
        "columns": chart.columns,
        "legend": {"label": chart.legend[:1].upper() + chart.legend[1:], "items": items},
        "panels": panels,
        "xname": chart.x[0],
        "xlabel": chart.x[1],
        "wide": chart.wide,
        "paired": chart.rows > 1,
        "seeds": any("seeds" in each for panel in panels for each in panel["series"]),
        "spans": chart.spans,
        "dodge": chart.kind == MAP,
    }
    if chart.categories:
        data["categories"] = list(chart.categories)
    picks = {panel.key: panel.title for panel in chart.panels}
    if chart.rows > 1 and len(picks) > 1:
        data["picks"] = {"label": "Signals", "items": [{"key": key, "name": name} for key, name in picks.items()]}
    return data


def caption(chart: Chart) -> str:
    """What a chart shows on the page."""
    bands = [band for panel in chart.panels for band in panel.series.values()]
    text, hint = chart.page_caption or chart.caption, ""
    if any(1 < band.n < chart.few for band in bands):
        hint = (
            " “Seeds” changes single runs for intervals."
            if chart.singles
            else f" No intervals below {chart.few} seeds."
        )
    if hint and all(band.n < chart.few for band in bands):
        text = text.replace("ean and 95% interval", "ean and single runs" if chart.singles else "ean")
    return text + hint + chart.remark


def legend_item(key: str, style: Style) -> dict[str, Any]:
    """A series as the page's script knows it."""
    dash = [] if isinstance(style.dash, str) else [round(DASH_SCALE * length, 1) for length in style.dash[1]]
    return {"key": key, "name": style.name, "light": style.colour, "dark": dark(style.colour), "dash": dash}


def dark(colour: str) -> str:
    """The colour for a dark page: the same hue with its lightness turned round, so that nothing sinks into the page.

    What is darkest on paper becomes brightest; the order of lightness, which tells series apart without colour, stays.
    """
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    hue, light, strength = colorsys.rgb_to_hls(red, green, blue)
    light = min(max(1.0 - light, _DARK_RANGE[0]), _DARK_RANGE[1])
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, light, strength))


def _panel(panel: Panel, chart: Chart) -> dict[str, Any]:
    places = np.arange(float(len(chart.categories))) if chart.categories else None
    x, found = curves(panel.series, places, singles=chart.singles, few=chart.few)
    flags = {name: True for name in ("zero", "percent", "log") if getattr(panel.y, name)}
    data: dict[str, Any] = {
        "key": panel.key,
        "title": panel.title if chart.rows > 1 or len({each.title for each in chart.panels}) > 1 else "",
        "x": x,
        "y": {"label": panel.y.label.replace("\n", " "), **flags},
        "series": found,
        "row": panel.row,
        "lines": [
            {"value": line.value, **({"key": line.key} if line.key else {"label": line.label})} for line in panel.lines
        ],
    }
    if panel.peaks:
        data["peaks"] = [{"key": key, "x": whole([x])[0]} for key, x in panel.peaks.items()]
    return data


def curves(
    bands: Mapping[str, Band], places: Array | None = None, *, singles: bool = False, few: int = 0
) -> tuple[list[float], list[dict[str, Any]]]:
    """Series on common positions.

    Args:
        bands: the series by key; they may have different positions.
        places: all positions; None for those of the series.
        singles: whether to give the single curves of each key too, where there are several.
        few: with fewer seeds than this, the single curves are drawn instead of the interval unless one asks for it.

    Returns:
        the positions, and a series for each key: "key", "n", "mean", "low" and "high" if there is an interval, and with
        single curves "seeds" and whether they are drawn at first, "single".
    """
    x = np.unique(np.concatenate([band.x for band in bands.values()] or [np.empty(0)])) if places is None else places
    found = []
    for key, band in bands.items():
        at = np.searchsorted(x, band.x)
        series: dict[str, Any] = {"key": key, "n": band.n, "mean": _spread(band.mean, at, len(x))}
        known = np.isfinite(band.low) & np.isfinite(band.high)
        if known.any() and (singles or band.n >= few):
            series["low"] = _spread(np.where(known, band.low, np.nan), at, len(x))
            series["high"] = _spread(np.where(known, band.high, np.nan), at, len(x))
        if singles and band.singles is not None and len(band.singles) > 1:
            series["seeds"] = [_spread(curve, at, len(x)) for curve in band.singles]
            series["single"] = band.n < few
        found.append(series)
    return whole(x), found


def _spread(values: Array, at: Array, size: int) -> Numbers:
    """Put values at their places among all positions, with few digits; None for one that cannot be drawn."""
    full = np.full(size, np.nan)
    full[at] = values
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in full]


def whole(values: Iterable[float]) -> list[float]:
    """Positions, without a fraction where there is none."""
    return [int(value) if float(value).is_integer() else float(f"{value:.8g}") for value in values]
