"""From a `View` to HTML: templates that escape everything, and a page that may load and send nothing.

The page carries its scripts and styles. Its Content-Security-Policy names their hashes and allows nothing else, so
that no text from a store could run or fetch anything even if it got into the page unescaped.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.analysis import table
from headway.analysis.charts.page import caption
from headway.analysis.charts.style import number_text
from headway.analysis.claims.output import what_it_takes
from headway.analysis.report.gates import EXPLANATION, gates_table
from headway.analysis.report.provenance import shared_facts
from headway.analysis.report.view import View
from headway.errors import MissingExtraError
from headway.runs.text import count, duration
from headway.study.protocols.names import GROUP_NAMES, title

HERE = Path(__file__).parent
STYLES = ("vendor/uPlot.min.css", "page.css")
EARLY = ("theme.js",)
"""Scripts that run before the page is drawn."""
LATE = ("vendor/uPlot.iife.min.js", "kit.js", "panels.js", "marks.js", "figures.js", "page.js")
"""Scripts that run when it is there."""
LIVE = ("live.js",)
"""What a live page runs besides."""

SECTIONS: Mapping[str, str] = {
    "progress": "Progress",
    "findings": "Findings",
    "overview": "Runs",
    "summary": "Summary",
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
    """What a written report links to; on a live page there is none.

    Attributes:
        runs: addresses of the folders of runs, by id.
        tables: tables with the addresses of their files.
        figures: names of figures with the addresses of their files.
        omissions: names of figures that could not be drawn, and why.
    """

    runs: Mapping[str, str]
    tables: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    figures: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]
    omissions: Sequence[tuple[str, str]] = ()


NO_LINKS = Links({}, (), ())


@dataclass(frozen=True)
class Live:
    """How a live page updates itself.

    Attributes:
        interval: seconds between two looks.
        version: what it shows now.
        figures_version: which figures.
    """

    interval: float
    version: str
    figures_version: str


def render_sections(view: View, links: Links = NO_LINKS, live: bool = False) -> dict[str, str]:
    """The HTML of every section, by id; empty where there is nothing to show."""
    environment = _environment()
    values = {"view": view, "links": links, "live": live}
    return {name: environment.get_template(f"{name}.html").render(values).strip() for name in SECTIONS}


def render_page(view: View, links: Links = NO_LINKS, live: Live | None = None) -> str:
    """The whole page."""
    sections = render_sections(view, links, live is not None)
    early, late = _read(EARLY), _read((*LATE, *LIVE) if live else LATE)
    style = _read(STYLES)
    return str(
        _environment()
        .get_template("page.html")
        .render(
            view=view,
            links=links,
            live=live,
            sections=sections,
            marks={name: mark(html) for name, html in sections.items()},
            names=SECTIONS,
            policy=policy([early, late], style, live is not None),
            style=_safe(style),
            early=_safe(early),
            late=_safe(late),
            data=_safe(embed(view.figures)),
        )
    )


def live_policy() -> str:
    """The Content-Security-Policy of a live page, to be sent as a header too."""
    return policy([_read(EARLY), _read((*LATE, *LIVE))], _read(STYLES), live=True)


def mark(html: str) -> str:
    """A short text that changes with the HTML of a section."""
    return hashlib.sha256(html.encode()).hexdigest()[:16]


def policy(scripts: Sequence[str], style: str, live: bool) -> str:
    """The page's Content-Security-Policy: its own scripts and styles, pictures that it carries, and nothing else."""
    allowed = {
        "default-src": "'none'",
        "script-src": " ".join(map(_hash, scripts)),
        "style-src": _hash(style),
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


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@functools.lru_cache(maxsize=8)
def _read(names: tuple[str, ...]) -> str:
    """The package's own files of these names, one after the other."""
    return "\n" + "\n".join((HERE / "assets" / name).read_text("utf-8").strip() for name in names) + "\n"


def _safe(text: str) -> Any:
    """Text of this package's own, or already made safe, that the templates take as it is."""
    from markupsafe import Markup

    return Markup(text)


@functools.lru_cache(maxsize=1)
def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("jinja2", "report") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        title=title,
        caption=caption,
        count=count,
        duration=duration,
        number=table.number,
        interval=table.interval,
        compared=table.compared,
        probability=table.probability,
        percent=table.percent,
        setting=number_text,
        reach=reach,
        is_finite=math.isfinite,
        takes=what_it_takes,
        shared_facts=shared_facts,
    )
    environment.globals.update(group_names=GROUP_NAMES, gates_explanation=EXPLANATION, gates_table=gates_table)
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
