"""The results as pages in Markdown, for a repository or a documentation site.

What is generated stands between two marks, so that a page can say more in words around it: writing the page again
replaces what is between the marks and leaves the rest alone. The first mark may name `PARTS` of the results, such as
`<!-- results: begin claims, noise -->`; otherwise the page has all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis import summaries
from headway.analysis.charts.figure import Printed, Tell, print_figures
from headway.analysis.charts.model import number_text, percent_text, seeds_text
from headway.analysis.charts.sensitivity import Cell as GridCell
from headway.analysis.charts.sensitivity import GridView
from headway.analysis.claims.areas import published_t
from headway.analysis.claims.formats import as_markdown
from headway.analysis.comparison import Setting
from headway.analysis.report import View
from headway.analysis.report.overview import facts_of, notes_of
from headway.analysis.report.sources import Strip, Telemetry
from headway.analysis.rundata import RunData
from headway.analysis.table import Cell, Table, interval, number, percent, probability, ranges, ratio_cells
from headway.errors import UsageError
from headway.runs.files import write_bytes
from headway.study.protocols.labels import STANDARD
from headway.study.protocols.names import GROUP_NAMES, MARK, title
from headway.telemetry.writers import NUMBERS

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
PARTS = (*("runs", "claims", "curriculum", "noise", "comparison", "variants", "sensitivity", "exploration", "sources"),)
"""The parts of the results: what was run; the claims; each condition; tests and areas over conditions; variants of GMC;
its constants; exploration; telemetry of data sources."""
_BEGIN = re.compile(r"<!-- results: begin(?: ([a-z, ]+))? -->")
FIGURES, FORMAT = "figures", "svg"
NOISE = ("noise_time_share", "noise_reward_share", "intrinsic_mean")
"""What a run must have logged to say where its rewards came from."""
WELCH_EXPLANATION = (
    "GMC's area under the test-loss curve against that of each other signal; a negative t says that GMC is better. "
    "Marks are those of the protocol; the paper's own, for 20 seeds, are \\*\\* p < 0.001, \\* p < 0.05."
)
REWARD_EXPLANATION = (
    "Returns are in the environment's own unit: 1 is the best. The last two columns are medians over rollouts; "
    "the reward of a step includes the factor of the protocol."
)
GRID_EXPLANATION = (
    "In every cell: area under the test-loss curve relative to Uniform's / distance of the draws from uniform /\n"
    "share of the parameters under the floor / size of the scores (mean over arms, median over epochs). A star\n"
    "marks a 95% interval that does not hold 1; cells share their runs of Uniform, so several may do so by the\n"
    "same chance."
)
MOST_STRETCHES = 6  # Of a source whose state has changed more often, only the latest are named


def write_markdown(path: Path, source: Path, view: View, tell: Tell = lambda what, done, total: None) -> list[Path]:
    """Write a page, or its generated part anew, with its figures in `figures/PAGE` beside it.

    Pages with marks in the folder `PAGE` beside it are written too: `results.md` and `results/claims.md`, say. Returns
    the files, the pages first.

    Raises:
        UsageError: there is a file at the path without the marks, or marks that name another part.
        StoreError: it cannot be written.
    """
    pages = pages_at(path)
    frames = {page: (frame(page), parts_of(page)) for page in pages}
    folder = path.parent / FIGURES / path.stem
    shown = [  # figures that the generated parts of the pages show
        Path(os.path.normpath(page.parent / address))
        for page in pages
        for address in re.findall(rf"]\(([^()]+\.{FORMAT})\)", _split(page)[1])
    ]
    printed, _ = print_figures(source, view.results, folder, [FORMAT], tell)
    figures = [file for figure in printed for file in figure.files]
    for file in set(shown) - set(figures):
        if Path(os.path.normpath(folder)) in file.parents:
            file.unlink(missing_ok=True)
    for page, ((before, after), parts) in frames.items():
        write_bytes(page, f"{before}{render(view, printed, page.parent, parts)}{after}".encode())
    return [*pages, *figures]


def pages_at(path: Path) -> list[Path]:
    """A page, and those with marks in the folder of its name beside it."""
    others = sorted((path.parent / path.stem).glob("*.md"))
    return [path, *(page for page in others if _BEGIN.search(page.read_text(encoding="utf-8")))]


def frame(path: Path) -> tuple[str, str]:
    """What stands before and after the generated part; only the marks and a heading where there is no page yet."""
    before, _, after = _split(path)
    return f"{before}\n", f"\n{after}"


def parts_of(path: Path) -> Collection[str]:
    """The parts of the results that a page has: those that its first mark names, or all."""
    named = _BEGIN.search(_split(path)[0])
    found = named[1].replace(",", " ").split() if named and named[1] else PARTS
    for part in found:
        if part not in PARTS:
            raise UsageError(f"{path}: expected parts of the results out of {', '.join(PARTS)}, got {part!r}")
    return found


def _split(path: Path) -> tuple[str, str, str]:
    """A page up to its first mark, between the marks, and from its second mark on."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    begin = _BEGIN.search(text)
    end = text.find(END, begin.end()) if begin else -1
    if begin is None or end < 0:
        raise UsageError(f"expected a page with the marks {BEGIN} and {END}, got {path} without them; choose another")
    return text[: begin.end()], text[begin.end() : end], text[end:]


def render(view: View, figures: Sequence[Printed], folder: Path, parts: Collection[str] = PARTS) -> str:
    """What is generated of some parts of the results, as seen from a folder."""
    found = [_counts(view)] if view.is_of_runs and "runs" in parts else []
    if "claims" in parts:
        found += [
            f"## Claims: protocol {protocol}\n\n{as_markdown(claims, only_found=True)}"
            for protocol, claims in view.claims.items()
        ]
    for setting in view.settings:
        known = setting.group.condition if setting.group.condition in PARTS else "comparison"
        found += [_setting(view, setting)] if setting.key in view.areas and known in parts else []
    found += [_welch(view)] if any(view.tests.values()) and "comparison" in parts else []
    if view.gates and "variants" in parts:
        found.append(f"## Noise gates\n\n{view.gates.explanation}\n\n{view.gates.table.markdown()}")
    if view.grids and "sensitivity" in parts:
        found.append("\n\n".join(["## Sensitivity", GRID_EXPLANATION, *map(_grid, view.grids)]))
    if "exploration" in parts:
        found += [_rewards(view, setting) for setting in view.settings if view.rewards.get(setting.key)]
    found += [_telemetry(each) for each in view.telemetry] if "sources" in parts else []
    shown = [figure for figure in figures if not figure.part or figure.part in parts]
    found += [_figures(shown, folder)] if shown else []
    return _marked("\n\n".join(part.strip() for part in found), view)


def _marked(text: str, view: View) -> str:
    """The text with a mark at every dataset that is not the official copy, and what the mark means before it."""
    remarks = {}
    for origin in view.origins:
        if origin.notes and origin.setting.group.dataset:
            remarks[title(origin.setting.group.dataset)] = "; ".join(origin.notes)
    lines = []
    for name, remark in remarks.items():
        whole = rf"(?<![\w-]){re.escape(name)}(?! classifier|{MARK})"  # not that of the benchmark, which has no data
        text, number = re.subn(whole, f"{name}{MARK}", text)
        lines += [f"{MARK} {name} is not the official copy: {remark}.\n"] if number else []
    return "\n".join((*lines, text))


def _counts(view: View) -> str:
    tiles = ", ".join(f"{tile.number} {tile.label}" for tile in view.overview.tiles)
    rows: list[tuple[Cell, ...]] = []
    points = {group for grid in view.grids for group in grid.only}
    for origin in view.origins:
        setting = origin.setting
        if setting.group not in points:
            methods = " / ".join(map(_method, setting.finished.values()))
            cells = _origin_cells(origin.facts, origin.notes)
            rows.append((f"{setting.title}: {methods}", setting.group.protocol, origin.seeds, *cells))
    for shown in view.grids:
        runs = [run for members in shown.grid.points.values() for run in members]
        cells = _origin_cells(facts_of(runs), notes_of(runs))
        rows.append(
            (f"{shown.chart.title}: {len(runs)} runs", "see the table", ranges(run.seed for run in runs), *cells)
        )
    return f"{tiles}.\n\n{Table(('runs', 'protocol', 'seeds', 'computed with', 'the data'), rows).markdown()}"


def _method(runs: Sequence[RunData]) -> str:
    """A method, and what its runs do as they did before the preset came to do it otherwise."""
    former = ", ".join(dict.fromkeys(choice for run in runs for choice in run.former))
    return f"{title(runs[0].method)} (with {former})" if former else title(runs[0].method)


def _origin_cells(facts: Mapping[str, str], notes: Sequence[str]) -> tuple[str, str]:
    """What runs were computed with, and which copy of the data."""
    versions = ", ".join(f"{name} {facts[name]}" for name in ("headway", "code", "torch") if name in facts)
    copy = f"fingerprint {facts['fingerprint'][:12]}" if facts.get("fingerprint") else ""
    return versions, "; ".join(filter(None, (copy, *notes)))


def _setting(view: View, setting: Setting) -> str:
    """The signals of one condition: areas with intervals, last losses, and where the draws went."""
    groups = GROUP_NAMES.get(setting.group.condition, ())
    head = ["signal", "seeds", "area relative to Uniform", "95% interval", "final loss"]
    rows: list[tuple[Cell, ...]] = []
    for row in view.areas[setting.key].rows:
        ratio = ratio_cells(None if row.method == "uniform" else row.relative, len(row.seeds))
        shares = (percent(share.value) for share in row.shares)
        rows.append((title(row.method), len(row.seeds), *ratio, row.final_loss.value, *shares))
    lines = _heading(view, setting)
    if setting.uniform_source is not None:
        lines += [f"Compared with the runs of Uniform under protocol {setting.uniform_source.group.protocol}.", ""]
    return "\n".join((*lines, Table([*head, *(f"last draws {g}" for g in groups)], rows).markdown()))


def _welch(view: View) -> str:
    """The paper's table of tests: t of GMC against each signal, with what the paper has beside it."""
    rows: list[tuple[Cell, ...]] = []
    for setting in view.settings:
        for row in view.tests.get(setting.key, ()):
            published = published_t(setting.group.condition, setting.group.dataset or "", row.baseline)
            names = setting.title, setting.group.protocol, title(row.baseline)
            seeds = " and ".join(dict.fromkeys(map(str, row.n)))
            test = (number(row.test.t, ".3f"), probability(row.test.p)) if row.test else (row.why, "")
            marks = row.stars, published if setting.group.protocol == STANDARD else ""
            rows.append((*names, seeds, *test, probability(row.p_holm), *map(_plain, marks)))
    head = ("condition", "protocol", "against", "seeds", "t", "p", "p (Holm)", "mark", "paper")
    return f"## Welch's tests of the areas\n\n{WELCH_EXPLANATION}\n\n{Table(head, rows).markdown()}"


def _rewards(view: View, setting: Setting) -> str:
    """The methods of one exploration setting: what they reach, and how much of it is noise."""
    head = ["method", "seeds", "return at the end", "95% interval", "of each seed", "time in the noise"]
    head += ["of all reward, in the noise", "of a rollout's reward, on average"]
    head += ["reward of a step in the noise / elsewhere", "intrinsic reward of a step"]
    rows: list[tuple[Cell, ...]] = []
    for method, reward in view.rewards[setting.key].items():
        runs = setting.finished[method]
        shares = [
            _mean(runs, lambda run: run.columns["noise_time_share"]),
            _mean(runs, summaries.paid_in_noise),
            _mean(runs, lambda run: run.columns["noise_reward_share"]),
        ]
        each = ", ".join(number(summaries.final_return(run), ".2f") for run in runs)
        numbers = number(reward.value, ".2f"), interval(reward, ".2f"), each
        pull = number(_mean(runs, summaries.pull_of_noise), ".2f")
        pay = number(_mean(runs, summaries.pay_per_step) or None, ".1e")
        rows.append((title(method), len(runs), *numbers, *map(percent, shares), pull, pay))
    return "\n".join((*_heading(view, setting), Table(head, rows).markdown(), "", REWARD_EXPLANATION))


def _grid(view: GridView) -> str:
    """What the runs of a grid share, and a table with several numbers in every cell."""
    grid = view.grid
    preset = grid.setting.group.protocol.split(",")[0]
    seeds = seeds_text(map(len, grid.points.values()))
    about = f"Protocol {preset}, {seeds} in a cell; floors {grid.unit}; compared with Uniform under protocol"
    rows = [(name, *map(_cell_text, cells)) for name, cells in grid.lines]
    table = Table((f"{grid.label} \\ floor", *map(number_text, grid.floors)), rows)
    return f"### {view.chart.title}\n\n{about} {grid.uniform_text}.\n\n{table.markdown()}"


def _cell_text(cell: GridCell | None) -> str:
    if cell is None:
        return "–"
    under = percent_text(cell.under_floor.value) if cell.under_floor else "–"
    size = number(cell.score.value if cell.score else None, ".2g")
    sure = "" if cell.ratio.covers(1) else "*"
    return f"{number(cell.ratio.value, '.4f')}{sure} / {percent_text(cell.distance.value)} / {under} / {size}"


def _telemetry(telemetry: Telemetry) -> str:
    """The sources of one file: their states, and the numbers of their last rows."""
    lines = [f"## Data sources, {_plain(telemetry.name)}", ""]
    lines += [f"*{_plain(telemetry.remark)}*", ""] if telemetry.remark else []
    if not telemetry.latest:
        return "\n".join(lines)
    rows: list[tuple[Cell, ...]] = []
    known = [name for name in NUMBERS if any(np.isfinite(row.values[name]) for row in telemetry.latest)]
    for row, strip in zip(telemetry.latest, telemetry.strips, strict=True):
        shares = ("share", "target")
        numbers = [percent(row.values[name]) if name in shares else number(row.values[name]) for name in known]
        rows.append((_plain(row.source), row.state, row.step, *numbers, _stretches(strip), _plain(row.advice)))
    head = ("source", "state", "step", *(name.replace("_", " ") for name in known), "states over time", "advice")
    return "\n".join((*lines, Table(head, rows).markdown()))


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


def _heading(view: View, setting: Setting) -> list[str]:
    """The heading of a setting, and what must be said beside its numbers, such as that its data are not official."""
    notes = [note for origin in view.origins if origin.setting.key == setting.key for note in origin.notes]
    return [f"## {setting.title}, protocol {setting.group.protocol}", "", *(f"*{note}*\n" for note in notes)]


def _mean(runs: Sequence[RunData], share: Callable[[RunData], ArrayLike]) -> float | None:
    """The mean of a share, or of one for each rollout, over runs that have logged it; None if none has."""
    logged = [np.atleast_1d(share(run)) for run in runs if all(column in run.columns for column in NOISE)]
    means = [each[np.isfinite(each)].mean() for each in logged if np.isfinite(each).any()]
    return float(np.mean(means)) if means else None
