"""The results as a page in Markdown, for a repository or a documentation site.

What is generated stands between two marks, so that a page can say more in words around it: writing the page again
replaces what is between the marks and leaves the rest alone.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headway.analysis.claims.output import as_markdown
from headway.analysis.figures.catalogue import plan_figures, seeds_text
from headway.analysis.figures.grids import Cell
from headway.analysis.figures.style import number_text
from headway.analysis.names import GROUP_NAMES, title
from headway.analysis.report import words
from headway.analysis.report.gates import GateRow
from headway.analysis.report.groups import Setting
from headway.analysis.report.printing import Printed, Tell, named_drawings, print_figures
from headway.analysis.report.rows import NUMBERS
from headway.analysis.report.sensitivity import GridView
from headway.analysis.report.sources import Strip, Telemetry
from headway.analysis.report.view import View
from headway.analysis.report.words import listed
from headway.analysis.results import Results
from headway.analysis.rundata import RunData, planned_epochs
from headway.errors import UsageError
from headway.runs.files import write_bytes

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
FIGURES, FORMAT = "figures", "svg"
MOST_STRETCHES = 6
"""Of a source whose state has changed more often, only the latest are named."""


def write_markdown(path: Path, source: Path, view: View, tell: Tell = lambda what, done, total: None) -> list[Path]:
    """Write the page, or its generated part anew, with its figures in `figures/PAGE` beside it.

    Args:
        path: the page.
        source: where the runs are.
        view: what it shows.
        tell: told how far it is.

    Returns:
        the files, the page first.

    Raises:
        UsageError: there is a file at the path without the marks.
        StoreError: it cannot be written.
    """
    prints = print_figures(source, view.results, path.parent / FIGURES / path.stem, [FORMAT], tell)
    before, after = frame(path)
    write_bytes(path, f"{before}{render(view, prints.printed, path.parent)}{after}".encode())
    return [path, *(file for figure in prints.printed for file in figure.files)]


def frame(path: Path) -> tuple[str, str]:
    """What stands before and after the generated part; only the marks and a heading where there is no page yet.

    Raises:
        UsageError: there is a file at the path without the marks.
    """
    if not path.exists():
        return f"# Results\n\n{BEGIN}\n", f"\n{END}\n"
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"expected a page with the marks {BEGIN} and {END}, got {path} without them; choose another")
    return f"{before}{BEGIN}\n", f"\n{END}{after}"


def planned_figures(results: Results, path: Path) -> list[Printed]:
    """The figures that a page has, without drawing them."""
    folder = path.parent / FIGURES / path.stem
    return [
        Printed(name, drawing.caption, [folder / f"{name}.{FORMAT}"])
        for name, drawing in named_drawings(plan_figures(results))
    ]


def render(view: View, figures: Sequence[Printed], folder: Path) -> str:
    """What is generated, as seen from a folder."""
    parts = [_counts(view)] if view.is_of_runs else []
    parts += [
        f"## Claims: protocol {protocol}\n\n{as_markdown(claims, only_found=True)}"
        for protocol, claims in view.claims.items()
    ]
    parts += [_setting(view, setting) for setting in view.settings if setting.key in view.areas]
    parts += [_gates(view.gates)] if view.gates else []
    parts += [_grids(view.grids)] if view.grids else []
    parts += [_rewards(view, setting) for setting in view.settings if view.rewards.get(setting.key)]
    parts += [_telemetry(each) for each in view.telemetry]
    parts += [_figures(figures, folder)] if figures else []
    return "\n\n".join(part.strip() for part in parts)


def _counts(view: View) -> str:
    tiles = ", ".join(f"{tile.number} {tile.label}" for tile in view.overview.tiles)
    lines = [f"{tiles}.", "", "| runs | protocol | seeds | computed with | the data |", "|---|---|---|---|---|"]
    for origin in view.origins:
        setting = origin.setting
        methods = ", ".join(title(method) for method in setting.finished)
        facts = ", ".join(f"{name} {origin.facts[name]}" for name in ("headway", "torch") if name in origin.facts)
        notes = "; ".join(origin.notes)
        lines.append(_row(f"{setting.title}: {methods}", setting.group.protocol, origin.seeds, facts, notes))
    return "\n".join(lines)


def _setting(view: View, setting: Setting) -> str:
    """The signals of one condition: areas with intervals, last losses, and where the draws went."""
    groups = GROUP_NAMES.get(setting.group.condition, ())
    head = [
        "signal",
        "seeds",
        "area relative to Uniform",
        "95% interval",
        "final loss",
        *(f"draws {g}" for g in groups),
    ]
    lines = [f"## {setting.title}, protocol {setting.group.protocol}", "", *_notes(view, setting)]
    if setting.lender is not None:
        lines += [f"Compared with the runs of Uniform under protocol {setting.lender.group.protocol}.", ""]
    lines += [_row(*head), "|" + "---|" * len(head)]
    for row in view.areas[setting.key].rows:
        relative = None if row.method == "uniform" else row.relative
        lines.append(
            _row(
                title(row.method),
                str(len(row.seeds)),
                words.number(relative.value if relative else None, ".4f"),
                words.interval(relative, ".4f"),
                words.number(row.final_loss.value),
                *(words.percent(share.value) for share in row.shares),
            )
        )
    return "\n".join(lines)


def _gates(tables: Sequence[Sequence[GateRow]]) -> str:
    """GMC with and without a gate, in every setting that has both."""
    head = ["setting", "signal", "protocol", "seeds", "area relative to Uniform", "95% interval"]
    head += ["relative to the first GMC", "95% interval", "draws A/B/C/D or G0/G1/G2/G3"]
    lines = [
        "## Noise gates",
        "",
        "GMC whose parameters count only as far as their momentum stands out of the level of pure noise, beside GMC",
        "that counts them all; draws over all epochs.",
        "",
        _row(*head),
        "|" + "---|" * len(head),
    ]
    for row in itertools.chain.from_iterable(tables):
        shares = "/".join(f"{100 * share:.0f}" for share in row.shares)
        lines.append(
            _row(
                row.setting.title,
                title(row.method),
                row.protocol,
                str(len(row.seeds)),
                words.number(row.relative.value, ".4f"),
                words.interval(row.relative, ".4f"),
                words.number(row.against.value if row.against else None, ".4f"),
                words.interval(row.against, ".4f"),
                f"{shares} %",
            )
        )
    return "\n".join(lines)


def _grids(grids: Sequence[GridView]) -> str:
    """A table for each grid: three numbers in every cell."""
    parts = [
        "## Sensitivity",
        "",
        "In every cell: area under the test-loss curve relative to Uniform's / distance of the draws from uniform /",
        "share of the parameters under the floor.",
    ]
    for view in grids:
        floors = view.grid.floors
        parts += [
            "",
            f"### {view.title}",
            "",
            f"{view.grid.setting.group.protocol.split(',')[0]}, {_grid_seeds(view)}",
            "",
        ]
        parts += [_row(f"{view.grid.kind.label} \\ floor", *map(number_text, floors)), "|" + "---|" * (len(floors) + 1)]
        parts += [
            _row(row, *(_cell_text(view.cell(place, floor)) for floor in floors)) for place, row in enumerate(view.rows)
        ]
    return "\n".join(parts)


def _grid_seeds(view: GridView) -> str:
    epochs = {planned_epochs(run) for runs in view.grid.points.values() for run in runs}
    return f"{listed(sorted(map(str, epochs)))} epochs, {seeds_text(view.grid.points.values())} in a cell"


def _cell_text(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    under = words.percent(cell.under_floor.value if cell.under_floor else None)
    return f"{words.number(cell.ratio.value, '.4f')} / {words.percent(cell.distance.value)} / {under}"


def _rewards(view: View, setting: Setting) -> str:
    """The methods of one exploration setting: what they reach, and how much of it is noise."""
    lines = [f"## {setting.title}, protocol {setting.group.protocol}", "", *_notes(view, setting)]
    head = ["method", "seeds", "return at the end", "95% interval", "time in the noise", "reward paid in the noise"]
    lines += [_row(*head), "|" + "---|" * len(head)]
    for method, reward in view.rewards[setting.key].items():
        runs = setting.finished[method]
        shares = [_mean_share(runs, column) for column in ("noise_time_share", "noise_reward_share")]
        numbers = words.number(reward.value, ".2f"), words.interval(reward, ".2f")
        lines.append(_row(title(method), str(len(runs)), *numbers, *map(words.percent, shares)))
    return "\n".join(lines)


def _telemetry(telemetry: Telemetry) -> str:
    """The sources of one file: their states, and the numbers of their last rows."""
    lines = [f"## Data sources, {_plain(telemetry.name)}", ""]
    lines += [f"*{_plain(telemetry.remark)}*", ""] if telemetry.remark else []
    if not telemetry.latest:
        return "\n".join(lines)
    head = ["source", "state", "step", *(name.replace("_", " ") for name in NUMBERS), "states over time"]
    lines += [_row(*head), "|" + "---|" * len(head)]
    for row, strip in zip(telemetry.latest, telemetry.strips, strict=True):
        numbers = [
            words.percent(row.values[name]) if name == "share" else words.number(row.values[name]) for name in NUMBERS
        ]
        lines.append(_row(_plain(row.source), row.state, str(row.step), *numbers, _stretches(strip)))
    return "\n".join(lines)


def _stretches(strip: Strip) -> str:
    """The latest states of a source, each with the step at which it ends."""
    shown = [f"{each.state} to {each.last}" for each in strip.stretches[-MOST_STRETCHES:]]
    earlier = len(strip.stretches) - len(shown)
    return ", ".join([f"{earlier} before", *shown] if earlier else shown)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is; a row of a table takes care of bars."""
    return re.sub(r"([\\`*_\[\]<>&$~#])", r"\\\1", text)


def _figures(figures: Sequence[Printed], folder: Path) -> str:
    lines = ["## Figures"]
    for figure in figures:
        address = Path(os.path.relpath(figure.files[0], folder)).as_posix()
        lines += ["", f"![{figure.name}]({address})", "", f"*{figure.caption}*"]
    return "\n".join(lines)


def _notes(view: View, setting: Setting) -> list[str]:
    """What must be said beside every number of a setting, such as that its data are not the official copy."""
    notes = [note for origin in view.origins if origin.setting.key == setting.key for note in origin.notes]
    return [f"*{note}*\n" for note in notes]


def _mean_share(runs: Sequence[RunData], column: str) -> float | None:
    """The mean of a logged share over all rollouts and runs; None where it is not logged."""
    logged = [run.columns[column] for run in runs if column in run.columns]
    finite = [values[np.isfinite(values)] for values in logged]
    means = [float(values.mean()) for values in finite if len(values)]
    return float(np.mean(means)) if means else None


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
