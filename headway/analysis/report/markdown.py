"""The results as a page in Markdown, for a repository or a documentation site.

What is generated stands between two marks, so that a page can say more in words around it: writing the page again
replaces what is between the marks and leaves the rest alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from headway.analysis import summaries
from headway.analysis.charts.catalogue import plan_figures
from headway.analysis.claims.areas import published_t
from headway.analysis.claims.evidence import STANDARD
from headway.analysis.claims.output import as_markdown
from headway.analysis.report import words
from headway.analysis.report.markdown_parts import gates_text, grids_text, ratio_cells, table_row
from headway.analysis.report.provenance import facts_of, notes_of
from headway.analysis.report.sources import NUMBERS, Strip, Telemetry
from headway.analysis.report.view import View
from headway.analysis.report.writing import Printed, Tell, named_charts, print_figures
from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from headway.analysis.settings import Setting
from headway.errors import UsageError
from headway.runs.files import write_bytes
from headway.study.protocols.names import GROUP_NAMES, MARK, title

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
FIGURES, FORMAT = "figures", "svg"
NOISE = ("noise_time_share", "noise_reward_share", "intrinsic_mean")
"""What a run must have logged to say where it was paid."""
WELCH_EXPLANATION = (
    "GMC's area under the test-loss curve against that of each other signal; a negative t says that GMC is better. "
    "Marks are those of the protocol; the paper's own, for 20 seeds, are \\*\\* p < 0.001, \\* p < 0.05."
)
PAY_EXPLANATION = (
    "Returns are in the environment's own unit: 1 is the best. Pay in the noise and elsewhere is compared step by "
    "step, in the median rollout; so is the reward of a step, which has the factor of the protocol."
)
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
    before, after = frame(path)
    earlier = _figures_of(path)
    prints = print_figures(source, view.results, path.parent / FIGURES / path.stem, [FORMAT], tell)
    for file in earlier - {file for figure in prints.printed for file in figure.files}:
        file.unlink(missing_ok=True)
    write_bytes(path, f"{before}{render(view, prints.printed, path.parent)}{after}".encode())
    return [path, *(file for figure in prints.printed for file in figure.files)]


def _figures_of(path: Path) -> set[Path]:
    """The figures that the generated part of a page shows, in the folder that is the page's own."""
    if not path.exists():
        return set()
    generated = path.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    folder = path.parent / FIGURES / path.stem
    shown = {path.parent / address for address in re.findall(rf"]\(([^()]+\.{FORMAT})\)", generated)}
    return {file for file in shown if folder in file.parents and ".." not in file.parts}


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
        Printed(name, chart.caption, [folder / f"{name}.{FORMAT}"])
        for name, chart in named_charts(plan_figures(results))
    ]


def render(view: View, figures: Sequence[Printed], folder: Path) -> str:
    """What is generated, as seen from a folder."""
    parts = [_counts(view)] if view.is_of_runs else []
    parts += [
        f"## Claims: protocol {protocol}\n\n{as_markdown(claims, only_found=True)}"
        for protocol, claims in view.claims.items()
    ]
    parts += [_setting(view, setting) for setting in view.settings if setting.key in view.areas]
    parts += [_welch(view)] if any(view.tests.values()) else []
    parts += [gates_text(view.gates)] if view.gates else []
    parts += [grids_text(view.grids)] if view.grids else []
    parts += [_rewards(view, setting) for setting in view.settings if view.rewards.get(setting.key)]
    parts += [_telemetry(each) for each in view.telemetry]
    parts += [_figures(figures, folder)] if figures else []
    return _marked("\n\n".join(part.strip() for part in parts), view)


def _marked(text: str, view: View) -> str:
    """The text with a mark at every dataset that is not the official copy, and what the mark means before it."""
    remarks = {}
    for origin in view.origins:
        if origin.notes and origin.setting.group.dataset:
            remarks[title(origin.setting.group.dataset)] = "; ".join(origin.notes)
    for name in remarks:
        whole = rf"(?<![\w-]){re.escape(name)}(?! classifier|{MARK})"  # not that of the benchmark, which has no data
        text = re.sub(whole, f"{name}{MARK}", text)
    lines = [f"{MARK} {name} is not the official copy: {remark}.\n" for name, remark in remarks.items()]
    return "\n".join((*lines, text))


def _counts(view: View) -> str:
    tiles = ", ".join(f"{tile.number} {tile.label}" for tile in view.overview.tiles)
    lines = [f"{tiles}.", "", "| runs | protocol | seeds | computed with | the data |", "|---|---|---|---|---|"]
    points = {group for grid in view.grids for group in grid.only}
    for origin in view.origins:
        setting = origin.setting
        if setting.group in points:
            continue
        methods = " / ".join(map(_method_and_former_choices, setting.finished.values()))
        cells = (setting.group.protocol, origin.seeds, *_origin_cells(origin.facts, origin.notes))
        lines.append(table_row(f"{setting.title}: {methods}", *cells))
    for shown in view.grids:
        runs = [run for members in shown.grid.points.values() for run in members]
        seeds = words.ranges(run.seed for run in runs)
        cells = ("see the table", seeds, *_origin_cells(facts_of(runs), notes_of(runs)))
        lines.append(table_row(f"{shown.title}: {len(runs)} runs", *cells))
    return "\n".join(lines)


def _method_and_former_choices(runs: Sequence[RunData]) -> str:
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
    head = [
        "signal",
        "seeds",
        "area relative to Uniform",
        "95% interval",
        "final loss",
        *(f"last draws {g}" for g in groups),
    ]
    lines = [f"## {setting.title}, protocol {setting.group.protocol}", "", *_notes(view, setting)]
    if setting.lender is not None:
        lines += [f"Compared with the runs of Uniform under protocol {setting.lender.group.protocol}.", ""]
    lines += [table_row(*head), "|" + "---|" * len(head)]
    for row in view.areas[setting.key].rows:
        relative = None if row.method == "uniform" else row.relative
        lines.append(
            table_row(
                title(row.method),
                str(len(row.seeds)),
                *ratio_cells(relative, len(row.seeds)),
                words.number(row.final_loss.value),
                *(words.percent(share.value) for share in row.shares),
            )
        )
    return "\n".join(lines)


def _welch(view: View) -> str:
    """The paper's table of tests: t of GMC against each signal, with what the paper has beside it."""
    head = ["condition", "protocol", "against", "seeds", "t", "p", "p (Holm)", "mark", "paper"]
    lines = ["## Welch's tests of the areas", "", WELCH_EXPLANATION, "", table_row(*head), "|" + "---|" * len(head)]
    for setting in view.settings:
        for row in view.tests.get(setting.key, ()):
            published = published_t(setting.group.condition, setting.group.dataset or "", row.baseline)
            shown = published if setting.group.protocol == STANDARD else ""
            found = (words.number(row.test.t, ".3f"), words.probability(row.test.p)) if row.test else (row.why, "")
            seeds = " and ".join(dict.fromkeys(map(str, row.n)))
            cells = (
                title(row.baseline),
                seeds,
                *found,
                words.probability(row.p_holm),
                _plain(row.stars),
                _plain(shown),
            )
            lines.append(table_row(setting.title, setting.group.protocol, *cells))
    return "\n".join(lines)


def _rewards(view: View, setting: Setting) -> str:
    """The methods of one exploration setting: what they reach, and how much of it is noise."""
    lines = [f"## {setting.title}, protocol {setting.group.protocol}", "", *_notes(view, setting)]
    head = [
        "method",
        "seeds",
        "return at the end",
        "95% interval",
        "of each seed",
        "time in the noise",
        "of all reward, paid in the noise",
        "of a rollout's reward, on average",
        "pay of a step in the noise / elsewhere",
        "intrinsic reward of a step",
    ]
    lines += [table_row(*head), "|" + "---|" * len(head)]
    for method, reward in view.rewards[setting.key].items():
        runs = setting.finished[method]
        shares = [
            _mean(runs, lambda run: _mean_over_rollouts(run, "noise_time_share")),
            _mean(runs, summaries.paid_in_noise),
            _mean(runs, lambda run: _mean_over_rollouts(run, "noise_reward_share")),
        ]
        each = ", ".join(words.number(summaries.final_return(run), ".2f") for run in runs)
        numbers = words.number(reward.value, ".2f"), words.interval(reward, ".2f"), each
        pull = words.number(_mean(runs, summaries.pull_of_noise), ".2f")
        pay = words.number(_mean(runs, summaries.pay_per_step) or None, ".1e")
        lines.append(table_row(title(method), str(len(runs)), *numbers, *map(words.percent, shares), pull, pay))
    return "\n".join((*lines, "", PAY_EXPLANATION))


def _telemetry(telemetry: Telemetry) -> str:
    """The sources of one file: their states, and the numbers of their last rows."""
    lines = [f"## Data sources, {_plain(telemetry.name)}", ""]
    lines += [f"*{_plain(telemetry.remark)}*", ""] if telemetry.remark else []
    if not telemetry.latest:
        return "\n".join(lines)
    head = ["source", "state", "step", *(name.replace("_", " ") for name in NUMBERS), "states over time"]
    lines += [table_row(*head), "|" + "---|" * len(head)]
    for row, strip in zip(telemetry.latest, telemetry.strips, strict=True):
        numbers = [
            words.percent(row.values[name]) if name == "share" else words.number(row.values[name]) for name in NUMBERS
        ]
        lines.append(table_row(_plain(row.source), row.state, str(row.step), *numbers, _stretches(strip)))
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


def _mean(runs: Sequence[RunData], share: Callable[[RunData], float]) -> float | None:
    """The mean of a share over runs that have logged it; None if none has."""
    logged = [share(run) for run in runs if all(column in run.columns for column in NOISE)]
    finite = [each for each in logged if np.isfinite(each)]
    return float(np.mean(finite)) if finite else None


def _mean_over_rollouts(run: RunData, column: str) -> float:
    """The mean of a logged share over the rollouts that have it; NaN if none has."""
    values = run.columns[column]
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
