"""One table that writes itself as text, Markdown, HTML, JSON, CSV and LaTeX, and how numbers are written in it."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from headway.analysis.stats import Estimate

Cell: TypeAlias = str | int | float | None

NOTHING = "–"  # What stands where there is no number
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
    """A table with plain values. Everything in it is escaped as the format asks."""

    columns: Sequence[str]  # headings
    rows: Sequence[Sequence[Cell]]  # the values; None where there is none
    title: str = ""  # what it shows
    name: str = ""  # the stem of its files
    # how the numbers of a column are shown, by heading; with four digits otherwise. CSV has them in full.
    formats: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The table as plain text with aligned columns, its title above."""
        rows = [self.columns, *map(self._shown, self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, ["-" * width for width in widths])
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self.title, *lines] if self.title else lines)

    def markdown(self) -> str:
        """The table in Markdown, without its title."""
        rows = [self.columns, *map(self._shown, self.rows)]
        lines = ["| " + " | ".join(_one_line(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
        lines.insert(1, "|" + "---|" * len(self.columns))
        return "\n".join(lines)

    def html(self) -> str:
        """The table as an HTML element, its title as the caption; columns of numbers have the class "num"."""
        kinds = [' class="num"' if is_of_numbers else "" for is_of_numbers in self._are_of_numbers()]
        heads = "".join(f"<th{kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, self.columns, strict=True))
        lines = ["<table>", f"<caption>{html.escape(self.title)}</caption>"] if self.title else ["<table>"]
        lines += [f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
        for row in self.rows:
            first, *others = map(html.escape, self._shown(row))
            cells = "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds[1:], others, strict=True))
            lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
        return "\n".join([*lines, "</tbody>", "</table>"])

    __html__ = html  # What templates write for a table

    def json(self) -> str:
        """The rows as JSON objects by heading, with numbers in full; null where there is none."""
        rows = [[None if _is_unknown(cell) else cell for cell in row] for row in self.rows]
        return json.dumps([dict(zip(self.columns, row, strict=True)) for row in rows], indent=1)

    def formatted(self, kind: str) -> str:
        """The table as "text", "markdown", "json" or "csv", without a line end."""
        text: str = getattr(self, kind)()
        return text.rstrip("\n")

    def csv(self) -> str:
        """The table as CSV, with numbers in full."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_csv_cell(cell) for cell in row] for row in self.rows)
        return text.getvalue()

    def latex(self) -> str:
        """The table as LaTeX, for booktabs."""
        lines = [
            f"% {_one_line(self.title)}",
            r"\begin{tabular}{" + "".join("r" if each else "l" for each in self._are_of_numbers()) + "}",
            r"\toprule",
            " & ".join(map(escape, self.columns)) + r" \\",
            r"\midrule",
            *(" & ".join(map(_latex_cell, row, self._formats())) + r" \\" for row in self.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines) + "\n"

    def _are_of_numbers(self) -> list[bool]:
        """Whether each column has no text."""
        return [all(not isinstance(row[place], str) for row in self.rows) for place in range(len(self.columns))]

    def _formats(self) -> list[str]:
        return [self.formats.get(name, ".4g") for name in self.columns]

    def _shown(self, row: Sequence[Cell]) -> list[str]:
        """The cells of a row as people read them."""
        cells = zip(row, self._formats(), strict=True)
        return [number(cell, form) if cell is None or isinstance(cell, float) else str(cell) for cell, form in cells]


def escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _csv_cell(cell: Cell) -> Cell:
    """A value for a spreadsheet; what it would take for a formula is quoted, so that opening a file runs nothing."""
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return "'" + cell
    return None if _is_unknown(cell) else cell


def _is_unknown(cell: Cell) -> bool:
    return isinstance(cell, float) and not math.isfinite(cell)


def _latex_cell(cell: Cell, form: str) -> str:
    if cell is None or _is_unknown(cell):
        return "--"
    if isinstance(cell, str):
        return escape(cell)
    return str(cell) if isinstance(cell, int) else f"${cell:{form}}$"


def number(value: float | None, form: str = ".4g") -> str:
    """A number, or a dash where there is none."""
    return NOTHING if value is None or not math.isfinite(value) else format(value, form)


def percent(value: float | None) -> str:
    """A share in percent."""
    return number(value, ".0%")


def probability(p: float | None) -> str:
    """A p-value, as small as it makes sense to write it."""
    return "< 0.0001" if p is not None and p < 1e-4 else number(p, ".4f")


def interval(estimate: Estimate | None, form: str = ".4g") -> str:
    """The interval of a number, such as "[0.91, 0.95]"; a dash without one."""
    if estimate is None or not estimate.is_bounded:
        return NOTHING
    return f"[{estimate.low:{form}}, {estimate.high:{form}}]"


def compared(estimate: Estimate | None, seeds: int) -> str:
    """How many of the seeds a ratio rests on, such as "(1 of 2 seeds)"; nothing where each has its pair."""
    if estimate is None:
        return ""
    if estimate.unpaired and seeds > 1:
        return f"(unpaired, {estimate.unpaired[0]} against {estimate.unpaired[1]})"
    return f"({estimate.n} of {seeds} seeds)" if estimate.n < seeds else ""


def ratio_cells(ratio: Estimate | None, seeds: int) -> tuple[str, str]:
    """A ratio, with the seeds that it rests on where they are not all, and its interval; dashes where there is none."""
    value = number(ratio.value if ratio else None, ".4f")
    return f"{value} {compared(ratio, seeds)}".strip(), interval(ratio, ".4f")


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers with runs of neighbours drawn together, such as "0–4, 7"."""
    parts: list[list[int]] = []
    for each in sorted(set(numbers)):
        if parts and each == parts[-1][-1] + 1:
            parts[-1].append(each)
        else:
            parts.append([each])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}–{part[-1]}" for part in parts)
