"""Parts of a page in Markdown: rows of tables, and the tables of gates and grids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from headway.analysis.charts.model import seeds_text
from headway.analysis.charts.sensitivity import Cell, GridView
from headway.analysis.charts.style import number_text, percent_text
from headway.analysis.report import words
from headway.analysis.report.gates import EXPLANATION, GateRow
from headway.analysis.stats import Estimate
from headway.study.protocols.names import title


def table_row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def gates_text(tables: Sequence[Sequence[GateRow]]) -> str:
    """GMC with and without a gate, in every setting that has runs of a gate."""
    head = ["setting", "signal", "protocol", "seeds", "area relative to Uniform", "95% interval"]
    head += ["relative to GMC, same floor", "95% interval", "relative to GMC, first line", "95% interval"]
    head += ["draws A/B/C/D or G0/G1/G2/G3", "size of the scores"]
    lines = ["## Noise gates", "", EXPLANATION, "", table_row(*head), "|" + "---|" * len(head)]
    rows: dict[str, None] = {}  # GMC of the first line stands in every table of its setting, and here once
    for each in itertools.chain.from_iterable(tables):
        shares = "/".join(f"{100 * share:.0f}" for share in each.shares)
        ratios = [ratio_cells(ratio, len(each.seeds)) for ratio in (each.relative, each.beside, each.against)]
        cells = [*itertools.chain.from_iterable(ratios), f"{shares} %", words.number(each.score, ".2g")]
        rows[table_row(each.setting.title, title(each.method), each.protocol, str(len(each.seeds)), *cells)] = None
    return "\n".join((*lines, *rows))


def ratio_cells(ratio: Estimate | None, seeds: int) -> tuple[str, str]:
    """A ratio, with the seeds that it rests on where they are not all, and its interval; dashes where there is none."""
    value = words.number(ratio.value if ratio else None, ".4f")
    return f"{value} {words.compared(ratio, seeds)}".strip(), words.interval(ratio, ".4f")


def grids_text(grids: Sequence[GridView]) -> str:
    """A table for each grid: three numbers in every cell."""
    parts = [
        "## Sensitivity",
        "",
        "In every cell: area under the test-loss curve relative to Uniform's / distance of the draws from uniform /",
        "share of the parameters under the floor / size of the scores (mean over arms, median over epochs). A star",
        "marks a 95% interval that does not hold 1; cells share their runs of Uniform, so several may do so by the",
        "same chance.",
    ]
    for view in grids:
        floors = view.grid.floors
        parts += ["", f"### {view.title}", "", f"{_grid_words(view)}.", ""]
        parts += [
            table_row(f"{view.grid.label} \\ floor", *map(number_text, floors)),
            "|" + "---|" * (len(floors) + 1),
        ]
        parts += [
            table_row(name, *(_cell_text(view.cell(place, floor)) for floor in floors))
            for place, name in enumerate(view.rows)
        ]
    return "\n".join(parts)


def _grid_words(view: GridView) -> str:
    """What the runs of a grid share, and how many there are."""
    grid = view.grid
    preset = grid.setting.group.protocol.split(",")[0]
    seeds = seeds_text(grid.points.values())
    shared = f"Protocol {preset}, {seeds} in a cell; floors {grid.unit}"
    return f"{shared}; compared with Uniform under protocol {grid.uniform_text}"


def _cell_text(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    under = percent_text(cell.under_floor.value) if cell.under_floor else "–"
    size = words.number(cell.score.value, ".2g") if cell.score else "–"
    sure = "" if cell.ratio.covers(1) else "*"
    return f"{words.number(cell.ratio.value, '.4f')}{sure} / {percent_text(cell.distance.value)} / {under} / {size}"
