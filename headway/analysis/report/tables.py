"""Tables: one object that is shown on the page and written as CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from headway.analysis.report.numbers import Areas, Overall
from headway.analysis.rundata import RunData
from headway.analysis.settings import CONTROLLED, EXPLORATION, Setting
from headway.analysis.stats import Estimate
from headway.analysis.tables import WelchRow
from headway.study.protocols.names import GROUP_NAMES, title

Cell: TypeAlias = str | int | float | None

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Table:
    """A table with plain values.

    Attributes:
        name: the stem of its files.
        title: what it shows.
        columns: headings.
        rows: the values; None where there is none.
        formats: how the numbers of a column are shown in LaTeX, by heading; four digits otherwise.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    formats: Mapping[str, str] = field(default_factory=dict)

    def csv(self) -> str:
        """The table as CSV, with numbers in full."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_csv_cell(cell) for cell in row] for row in self.rows)
        return text.getvalue()

    def latex(self) -> str:
        """The table as LaTeX, for booktabs."""
        numeric = [all(not isinstance(row[place], str) for row in self.rows) for place in range(len(self.columns))]
        lines = [
            f"% {' '.join(self.title.split())}",
            r"\begin{tabular}{" + "".join("r" if each else "l" for each in numeric) + "}",
            r"\toprule",
            " & ".join(map(escape, self.columns)) + r" \\",
            r"\midrule",
            *(self._latex_row(row) for row in self.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines) + "\n"

    def _latex_row(self, row: Sequence[Cell]) -> str:
        forms = [self.formats.get(name, ".4g") for name in self.columns]
        return " & ".join(_latex_cell(cell, form) for cell, form in zip(row, forms, strict=True)) + r" \\"


def escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def _csv_cell(cell: Cell) -> Cell:
    """A value for a spreadsheet; what it would take for a formula is quoted, so that opening a file runs nothing."""
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return "'" + cell
    if isinstance(cell, float) and not math.isfinite(cell):
        return None
    return cell


def _latex_cell(cell: Cell, form: str) -> str:
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return "--"
    if isinstance(cell, str):
        return escape(cell)
    return str(cell) if isinstance(cell, int) else f"${cell:{form}}$"


def summary_table(settings: Sequence[Setting], areas: Mapping[str, Areas]) -> Table | None:
    """One line for each setting and signal."""
    rows: list[list[Cell]] = []
    for setting in settings:
        if setting.key not in areas:
            continue
        for row in areas[setting.key].rows:
            relative = _ends(row.relative) if row.relative and row.method != "uniform" else [None, None, None]
            shares = [share.value for share in row.shares]
            time = areas[setting.key].times.get(row.method)
            reached: list[Cell] = [time.median, time.reached] if time else [None, None]
            names = [*_names(setting), title(row.method), len(row.seeds)]
            uniform = (setting.lender or setting).group.protocol if row.relative else None
            rows.append([*names, *_ends(row.auc), *relative, uniform, row.final_loss.value, *reached, *shares])
    groups = [f"share {a}/{b}" for a, b in zip(*GROUP_NAMES.values(), strict=True)]
    heads = ["setting", "protocol", "signal", "seeds", "area", "area low", "area high"]
    heads += [
        "ratio",
        "ratio low",
        "ratio high",
        "Uniform of protocol",
        "final loss",
        "median epochs to Uniform's loss",
        "runs there",
        *groups,
    ]
    formats = dict.fromkeys(("ratio", "ratio low", "ratio high"), ".4f") | dict.fromkeys(groups, ".3f")
    return (
        Table("summary", "Areas under the test-loss curve and shares of the last draws", heads, rows, formats)
        if rows
        else None
    )


def overall_table(overall: Mapping[str, Overall]) -> Table | None:
    """One line for each protocol and signal, over all conditions."""
    rows: list[list[Cell]] = [
        [protocol, title(row.method), len(row.groups), *_ends(row.iqm), *_ends(row.improvement)]
        for protocol, found in overall.items()
        for row in found.rows
    ]
    heads = ["protocol", "signal", "conditions", "IQM of ratio", "IQM low", "IQM high"]
    heads += ["P(better than Uniform)", "P low", "P high"]
    return Table("overall", "Signals over all conditions", heads, rows) if rows else None


def welch_table(settings: Sequence[Setting], tests: Mapping[str, Sequence[WelchRow]]) -> Table | None:
    """One line for each test."""
    rows: list[list[Cell]] = []
    for setting in settings:
        for row in tests.get(setting.key, ()):
            test = row.test
            numbers: list[Cell] = [None] * 7
            if test:
                numbers = [test.t, test.df, test.p, row.p_holm, *_ends(test.difference)]
            rows.append([*_names(setting), title(row.method), title(row.baseline), *row.n, *numbers, row.stars])
    heads = ["setting", "protocol", "signal", "against", "seeds", "seeds against", "t", "df", "p", "p (Holm)"]
    heads += ["difference", "difference low", "difference high", "mark"]
    return (
        Table("welch", "Welch's t-tests on areas under the test-loss curve", heads, rows, {"t": ".3f", "df": ".1f"})
        if rows
        else None
    )


def rewards_table(settings: Sequence[Setting], rewards: Mapping[str, Mapping[str, Estimate]]) -> Table | None:
    """One line for each exploration setting and method."""
    rows: list[list[Cell]] = [
        [*_names(setting), title(name), reward.n, *_ends(reward)]
        for setting in settings
        if setting.kind == EXPLORATION
        for name, reward in rewards.get(setting.key, {}).items()
    ]
    heads = ["setting", "protocol", "method", "seeds", "final return", "low", "high"]
    return Table("rewards", "Episode return over the last tenth of the rollouts", heads, rows) if rows else None


def runs_table(runs: Sequence[RunData]) -> Table:
    """One line for each run, whatever became of it."""
    heads = ["run", "state", "experiment", "dataset", "condition", "method", "seed", "protocol"]
    heads += ["done", "total", "seconds", "host", "message"]
    rows: list[list[Cell]] = []
    for run in runs:
        progress = run.progress
        names: list[Cell] = [run.id, run.state.value, run.experiment, run.dataset, run.condition, run.method, run.seed]
        message = run.error.message if run.error else run.note
        rows.append([*names, run.protocol, progress.done, progress.total, progress.seconds, run.host, message])
    return Table("runs", "All runs", heads, rows, {"seconds": ".1f"})


def areas_table(settings: Sequence[Setting]) -> Table | None:
    """One line for each finished run of the controlled study, for whoever wants to calculate on."""
    from headway.analysis.summaries import auc

    rows: list[list[Cell]] = [
        [*_names(setting), run.method, run.seed, auc(run), run.id]
        for setting in settings
        if setting.kind == CONTROLLED
        for runs in setting.finished.values()
        for run in runs
    ]
    return (
        Table("areas", "Area of every run", ["setting", "protocol", "signal", "seed", "area", "run"], rows)
        if rows
        else None
    )


def _names(setting: Setting) -> list[Cell]:
    return [setting.title, setting.group.protocol]


def _ends(estimate: Estimate) -> list[Cell]:
    return [estimate.value, estimate.low, estimate.high]
