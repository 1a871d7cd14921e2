"""`headway demo`: the study in small."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from headway.commands.report import report_if_possible
from headway.runs import RunStore
from headway.runs.address import parse_new_folder
from headway.runs.campaign import Campaign, make_launcher, run_campaign
from headway.runs.output import emit
from headway.runs.progress import Outcome
from headway.study.demo import Line, conclusion, demo_specs, summarise
from headway.study.protocols.names import GROUP_NAMES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the demo."""
    add = parser.add_argument
    add("--out", type=parse_new_folder, default=Path("runs/demo"), help="where the runs are kept (%(default)s)")
    add("--workers", type=int, help="processes; 0 runs in this one (default: one per core)")
    add("--report", type=Path, default=Path("report"), metavar="DIR", help="where the report goes (%(default)s)")
    add("--seeds", type=int, default=3, choices=range(2, 21), metavar="N", help="2 to 20 (%(default)s)")


def execute(options: argparse.Namespace) -> int:
    """Run what is not done, print the table, and write a report if its packages are installed."""
    runs = demo_specs(options.seeds)
    emit(f"Digits, two conditions, six signals, {options.seeds} seeds: {len(runs)} runs in {options.out}")
    store = RunStore(options.out)
    launcher = None if options.workers is None else make_launcher(options.workers)
    tally = run_campaign(Campaign(runs, store), launcher)
    if tally.failures():
        emit(f"{len(tally.failures())} runs failed; see: headway status {options.out} --failed")
        return 1
    done = tally.count(Outcome.DONE)
    if done < len(runs):
        emit(f"{done} of {len(runs)} runs are done; the same command goes on with the rest")
        return 130
    lines = summarise(store, runs, compare)
    emit(table(lines))
    emit()
    emit(conclusion(lines))
    emit(f"\nThe runs: headway status {options.out}")
    report_if_possible(options.out, options.report)
    return 0


def compare(areas: Sequence[float], uniform: Sequence[float]) -> tuple[float, float, float]:
    """A ratio and its interval, as the report gives them."""
    from headway.analysis.stats import ratio

    found = ratio(areas, uniform)
    return found.value, found.low, found.high


def table(lines: Sequence[Line]) -> str:
    """The lines as text; each condition begins with the names of its groups."""
    text = [f"{'':24}{'loss area / Uniform':26}share of the last draws"]
    heads = f"{'condition':12}{'signal':12}{'(95% interval)':26}"
    before = ""
    for line in lines:
        if line.condition != before:
            text.append(f"{heads:50}" + "".join(f"{name:>6}" for name in GROUP_NAMES[line.condition]))
        interval = f"{line.ratio:.3f}  [{line.low:.3f}, {line.high:.3f}]" if line.signal != "uniform" else "1"
        shares = "".join(f"{share:6.0%}" for share in line.shares)
        text.append(f"{line.condition if line.condition != before else '':12}{line.signal:12}{interval:26}{shares}")
        before, heads = line.condition, ""
    return "\n".join(text)
