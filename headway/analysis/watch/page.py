"""`LivePage`: what the live page shows now, worked out anew when somebody asks and it is time to."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headway.analysis.report.rendering import Live, mark, render_page, render_sections
from headway.analysis.report.view import View, claims_of, make_view, update_view
from headway.analysis.results import Results, ResultsReader
from headway.runs import State

INTERVAL = 2.0
"""Seconds between two looks at the store."""
FULL_INTERVAL = 10.0
"""Seconds between two new sets of figures and tables, at least ..."""
SHARE = 0.1
"""... and so many that making them takes at most this part of the time."""


@dataclass(frozen=True)
class Snapshot:
    """What the page shows.

    Attributes:
        version: changes when anything does.
        figures_version: changes when a figure does.
        view: what is shown.
        sections: the HTML of the sections.
    """

    version: str
    figures_version: str
    view: View
    sections: Mapping[str, str]

    def page(self) -> str:
        """The whole page."""
        return render_page(self.view, live=Live(INTERVAL, self.version, self.figures_version))

    def update(self, known_figures: str) -> str:
        """What a page needs to show this, as JSON; the figures only if it has others."""
        sections = {name: {"mark": mark(html), "html": html} for name, html in self.sections.items()}
        figures: Any = None if known_figures == self.figures_version else self.view.figures
        content = {"version": self.version, "figuresVersion": self.figures_version}
        return json.dumps({**content, "sections": sections, "figures": figures}, allow_nan=False)


class LivePage:
    """The page of a store. Any number of threads may ask for it.

    Args:
        source: a run store, or a folder of exported runs.
        clock: gives seconds.

    Raises:
        StoreError: there are no runs at ``source``.
    """

    def __init__(self, source: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read nothing yet."""
        self._source = source
        self._clock = clock
        self._reader = ResultsReader(source)
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._due = self._full_due = float("-inf")
        self._content: object = None
        self._finished: object = None
        self._claims: Mapping[str, Any] = {}

    def snapshot(self) -> Snapshot:
        """What the page shows now; at most a few seconds old."""
        with self._lock:
            if self._snapshot is None or self._clock() >= self._due:
                self._snapshot = self._look()
                self._due = self._clock() + INTERVAL
            return self._snapshot

    def _look(self) -> Snapshot:
        results, now = self._reader.read(), datetime.now().astimezone()
        if not results.runs and not results.problems:
            ResultsReader(self._source)  # says so if there is nothing at all any more
        content = _content(results)
        if self._snapshot is None or (content != self._content and self._clock() >= self._full_due):
            began = self._clock()
            view = make_view(self._source, results, now, live=True, claims=self._judge(results))
            figures_version = _digest(json.dumps(view.figures))
            self._content = content
            cost = self._clock() - began
            self._full_due = self._clock() + max(FULL_INTERVAL, cost / SHARE)
        else:
            view = update_view(self._snapshot.view, results, now)
            figures_version = self._snapshot.figures_version
        sections = render_sections(view, live=True)
        return Snapshot(_digest(figures_version, *sections.values()), figures_version, view, sections)

    def _judge(self, results: Results) -> Mapping[str, Any]:
        """The claims; they rest on finished runs, and are judged again only when there are others."""
        finished = frozenset(run.id for run in results if run.finished)
        if finished != self._finished:
            self._claims, self._finished = claims_of(results), finished
        return self._claims


def _content(results: Results) -> object:
    """A value that changes when a figure or table may: a run has more metrics, or another state."""
    return [(run.id, run.state, run.rows) for run in results if run.state is not State.PENDING]


def _digest(*texts: str) -> str:
    sums = hashlib.sha256()
    for text in texts:
        sums.update(hashlib.sha256(text.encode()).digest())
    return sums.hexdigest()[:16]
