"""From a `View` to HTML: templates that escape everything, and a page that may load and send nothing.

The page carries its scripts and styles. Its Content-Security-Policy names their hashes and allows nothing else, so
that no text from a store could run or fetch anything even if it got into the page unescaped.
"""

from __future__ import annotations

import base64
import colorsys
import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headway.analysis import table
from headway.analysis.charts.model import LINES, MAP, Chart, Panel, Style, number_text
from headway.analysis.report.overview import shared_facts
from headway.analysis.rundata import Array
from headway.analysis.summaries import Band
from headway.errors import import_extra
from headway.runs.text import count, duration
from headway.study.protocols.names import GROUP_NAMES, title

if TYPE_CHECKING:
    from headway.analysis.report import View

HERE = Path(__file__).parent
STYLES = ("vendor/uPlot.min.css", "page.css")
EARLY = ("theme.js",)  # Scripts that run before the page is drawn
LATE = ("vendor/uPlot.iife.min.js", "kit.js", "panels.js", "marks.js", "figures.js", "page.js")
"""Scripts that run when it is there."""
LIVE = (*LATE, "live.js")  # The same for a live page

SECTIONS: Mapping[str, str] = {
    "progress": "Progress",
    "findings": "Findings",
    "overview": "Runs",
    "summary": "Summary",
    "studies": "Methods",
    "claims": "Claims",
    "figures": "Figures",
    "tests": "Tests",
    "exploration": "Exploration",
    "gates": "Noise gates",
    "sensitivity": "Sensitivity",
    "telemetry": "Telemetry",
    "sources": "Data sources",
    "provenance": "Provenance",
    "data": "Data",
}
"""The sections of the page and what the navigation calls them; those with nothing to show are left out."""


@dataclass(frozen=True)
class Links:
    """What a written report links to; on a live page there is none."""

    runs: Mapping[str, str]  # addresses of the folders of runs, by id
    tables: Sequence[tuple[str, Sequence[tuple[str, str]]]]  # tables with the addresses of their files
    figures: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]  # names of figures with the addresses of their files
    omissions: Sequence[tuple[str, str]] = ()  # names of figures that could not be drawn, and why


NO_LINKS = Links({}, (), ())


@dataclass(frozen=True)
class Live:
    """How a live page updates itself."""

    interval: float  # seconds between two looks
    version: str  # what it shows now
    figures_version: str  # which figures


def render_sections(view: View, links: Links = NO_LINKS, live: bool = False) -> dict[str, str]:
    """The HTML of every section, by id; empty where there is nothing to show."""
    environment = _environment()
    values = {"view": view, "links": links, "live": live}
    return {name: environment.get_template(f"{name}.html").render(values).strip() for name in SECTIONS}


def render_page(view: View, links: Links = NO_LINKS, live: Live | None = None) -> str:
    """The whole page."""
    sections = render_sections(view, links, live is not None)
    text: str = (
        _environment()
        .get_template("page.html")
        .render(
            {"view": view, "links": links, "live": live, "sections": sections, "names": SECTIONS},
            marks={name: mark(html) for name, html in sections.items()},
            policy=policy(live is not None),
            style=_read(STYLES),
            early=_read(EARLY),
            late=_read(LIVE if live else LATE),
            data=embed(view.figures),
        )
    )
    return text


def mark(html: str) -> str:
    """A short text that changes with another one, such as the HTML of a section."""
    return hashlib.sha256(html.encode()).hexdigest()[:16]


def policy(live: bool) -> str:
    """The page's Content-Security-Policy: its own scripts and styles, pictures that it carries, and nothing else."""
    allowed = {
        "default-src": "'none'",
        "script-src": " ".join(map(_hash, (EARLY, LIVE if live else LATE))),
        "style-src": _hash(STYLES),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    if live:
        allowed["connect-src"] = "'self'"
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def embed(data: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(names: tuple[str, ...]) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(_read(names).encode()).digest()).decode()}'"


@functools.lru_cache(maxsize=8)
def _read(names: tuple[str, ...]) -> str:
    """The package's own files of these names, one after the other."""
    return "\n" + "\n".join((HERE / "assets" / name).read_text("utf-8").strip() for name in names) + "\n"


@functools.lru_cache(maxsize=1)
def _environment() -> Any:
    jinja2 = import_extra("jinja2", "report")
    loader = jinja2.FileSystemLoader(HERE / "templates")
    options: dict[str, Any] = {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=loader, autoescape=True, **options)
    filters = title, caption, count, duration, reach, shared_facts
    numbers = table.number, table.interval, table.compared, table.probability, table.percent
    environment.filters.update({each.__name__: each for each in (*filters, *numbers)})
    environment.filters.update(setting=number_text, is_finite=math.isfinite)
    environment.globals.update(group_names=GROUP_NAMES)
    return environment


def reach(estimates: Sequence[Any]) -> Any:
    """A function that gives the place of a ratio on a small axis, from 2 to 142, shared by the lines of a table."""
    ends = [1.0]
    for estimate in estimates:
        ends += [estimate.value, *([estimate.low, estimate.high] if estimate.is_bounded else [])]
    ends = [end for end in ends if math.isfinite(end)]  # one that is not known has no place
    low, high = min(ends), max(ends)
    width = (high - low) or 1.0
    return lambda value: round(2 + 140 * (value - low) / width, 1)


DIGITS = 5  # Digits of a number that the page keeps; the raw data has all
DASH_SCALE = 1.7  # Pixels per unit of the printed dashes, for lines of two pixels
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
        seeds = " “Seeds” changes single runs for intervals."
        hint = seeds if chart.singles else f" No intervals below {chart.few} seeds."
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
    """The positions of all series, unless given, and each series on them.

    A series has "key", "n", "mean", "low" and "high" if there is an interval, and if `singles` are asked for and there
    are several, these as "seeds" and whether they are drawn at first, "single": with fewer seeds than `few`.
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
