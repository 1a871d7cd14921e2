"""The command `headway bench`."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import quoted
from benchmarks.cost import figure
from benchmarks.cost.cases import CASES
from benchmarks.cost.results import Result, load, to_json
from benchmarks.cost.results import save as save_json
from benchmarks.cost.runner import Progress, Settings, quick, run
from benchmarks.cost.tables import markdown, show, tables
from benchmarks.cost.variants import VARIANTS
from headway.commands.options import add_format_option
from headway.errors import HeadwayError, MissingExtraError

DESCRIPTION = """\
Measures a plain training step against the same step with scores: from headway, and by way of the per-sample
gradients of torch.func, Opacus and BackPACK where they are installed. Times are medians over interleaved rounds,
memory is counted from the allocator's events."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = DESCRIPTION
    add = parser.add_argument
    add("--quick", action="store_true", help="half a minute: cases a and c against torch.func alone")
    letters = "; ".join(f"{case.key}: {case.title}" for case in CASES.values())
    several: dict[str, Any] = {"action": "extend", "nargs": "+"}
    add("--cases", **several, choices=CASES, metavar="CASE", help=f"what to measure ({letters}; default: all)")
    names = ", ".join(VARIANTS)
    add("--variants", **several, choices=VARIANTS, metavar="NAME", help=f"out of {names} (default: all)")
    add("--rounds", type=_whole, metavar="N", help="at most so many rounds per case (default: 200)")
    add("--seconds", type=_positive, metavar="S", help="time for the rounds of a case (default: 60; quick: 8)")
    add("--threads", type=_whole, metavar="N", help="threads of torch (default: one per core)")
    add("--memory", action=argparse.BooleanOptionalAction, default=True, help="measure memory too")
    add_format_option(parser)
    add("--out", type=_folder, metavar="DIR", help="leave bench.json and the figure (SVG and PNG) there")
    add("--load", type=_file, metavar="FILE", help="measure nothing, show the bench.json of an earlier run")
    add("--docs", type=_file, metavar="PAGE", help="put tables into this page, and the figure into figures/ beside it")


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code: 130 if it was interrupted."""
    if options.docs:
        figure.require()  # better now than after the measurements
    if options.out:
        _make(options.out)
    result = load(options.load) if options.load else _measure(options)
    if options.format == "text":
        show(result)
    elif options.format == "csv":
        print(*(table.csv() for table in tables(result)), sep="\n", end="")
    else:
        print((to_json if options.format == "json" else markdown)(result))
    if options.out:
        _store(result, options.out)
    if options.docs and result.complete:
        page = options.docs.read_text("utf-8")
        options.docs.write_text(quoted(page, "bench", markdown(result)), "utf-8")
        _make(options.docs.parent / "figures")
        figure.save(result, options.docs.parent / "figures" / "benchmarks")
        print(f"wrote the numbers into {options.docs}")
    return 0 if result.complete or options.load else 130


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings that the options ask for; what is given wins over what --quick stands for."""
    base = quick(Settings()) if options.quick else Settings()
    given = {
        "cases": tuple(CASES[key] for key in dict.fromkeys(options.cases)) if options.cases else None,
        "variants": tuple(dict.fromkeys(options.variants)) if options.variants else None,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "threads": options.threads,
        "memory": options.memory,
    }
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def _measure(options: argparse.Namespace) -> Result:
    settings = settings_of(options)
    guess = settings.seconds + (5.0 if options.quick else 30.0)  # building, warming up, memory
    result = run(settings, Progress(len(settings.cases), guess))
    if not result.complete:
        print("interrupted; this is what was measured so far", file=sys.stderr)
    return result


def _store(result: Result, folder: Path) -> None:
    """Save JSON and figure. What was interrupted gets a name of its own and replaces no complete result."""
    path = folder / ("bench.json" if result.complete else "bench-partial.json")
    save_json(result, path)
    print(f"wrote {path}")
    if not result.complete:
        return
    try:
        for path in figure.save(result, folder / "bench"):
            print(f"wrote {path}")
    except MissingExtraError as error:
        print(f"no figure: {error}", file=sys.stderr)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadwayError(f"expected a folder that can be written to, got {folder}: {error.strerror}") from error


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _folder(text: str) -> Path:
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder, got the file {text!r}")
    return path


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"expected a file, got {text!r}, which is not one")
    return path
