"""The command `headway claims`: what runs say about the paper's claims."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.analysis.claims import CLAIMS, ClaimResult, evaluate_claims
from headway.analysis.claims.formats import SCHEMA, as_dict, as_markdown, as_text, parts_table
from headway.analysis.results import Results, load_results
from headway.commands.options import BENCH_HELP, add_format_option, add_runs_argument, whole
from headway.errors import UsageError
from headway.runs.files import store_error, write_bytes
from headway.runs.text import complain, count, emit
from headway.study.protocols.labels import STANDARD, nearest_first
from headway.study.protocols.names import title

ALL = "all"
TIME = "C16"
"""The claim that a benchmark decides, and no run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Judges each of the paper's claims by finished runs: reproduced, contradicted, undecided (then with how many "
        "seeds it would take) or not tested. Where there are no exploration runs of the released protocol, those of "
        "another one count."
    )
    add = parser.add_argument
    add_runs_argument(parser, "a run store or exported runs")
    add(
        "--protocol",
        metavar="LABEL",
        help=f"which runs count: a protocol's label, or {ALL} (released, or what there is)",
    )
    add("--bench", type=Path, nargs="+", metavar="FILE", help=f"{BENCH_HELP} (those in benchmarks/results beside RUNS)")
    add_format_option(parser)
    add("--json", type=Path, metavar="FILE", help="also write JSON")
    add("--markdown", type=Path, metavar="FILE", help="also write Markdown")
    add("--only", action="extend", nargs="+", metavar="ID", help="judge only these claims, such as C5 C7")
    add("--brief", action="store_true", help="one line per claim, without its parts")
    add("--seed", type=whole(0), default=0, metavar="N", help="where the bootstrap's randomness starts (0)")


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    options.bench = options.bench or measured_beside(options.path)
    bench = read_bench(options.bench)
    results = load_results(options.path)
    labels = choose_protocols(results, options.protocol)
    for claim_id in options.only or ():
        if claim_id not in CLAIMS:
            known = ", ".join(sorted(CLAIMS, key=lambda name: int(name[1:])))
            raise UsageError(f"expected claims out of {known}, got {claim_id!r}")
    judged = [evaluate_claims(results, label, bench, options.seed, options.only) for label in labels]
    _say_what_is_missing(results)
    made: dict[str, Callable[[], str]] = {
        "text": lambda: "\n\n".join(as_text(claims, verbose=not options.brief) for claims in judged) + "\n",
        "markdown": lambda: "\n".join(f"## Protocol: {each[0].protocol}\n\n{as_markdown(each)}" for each in judged),
        "json": lambda: json.dumps(document(options.path, results, judged), indent=1) + "\n",
        "csv": lambda: parts_table(judged).csv(),
    }
    emit(made[options.format]().rstrip("\n"))
    if options.format == "text":
        for words in (*_about_the_data(results, labels), *_what_was_not_asked(results, labels, options)):
            emit(words)
    for kind in ("json", "markdown"):
        if path := getattr(options, kind):
            _write(path, made[kind]())
    return 0


def choose_protocols(results: Results, asked: str | None) -> list[str]:
    """The labels of the protocols to judge by: the one asked for, or "all".

    None means the released one, or all there are if that has no finished run.
    """
    known = results.finished().protocols()
    if asked == ALL:
        return list(known) or [STANDARD]
    if asked is None:
        return [STANDARD] if STANDARD in known or not known else list(known)
    if asked not in known:
        there = "; ".join(known) or "none"
        raise UsageError(f"expected the protocol of a finished run ({there}), or {ALL}, got {asked!r}")
    return [asked]


def document(path: Path, results: Results, judged: Sequence[Sequence[ClaimResult]]) -> dict[str, Any]:
    """All verdicts as plain JSON values."""
    return {
        "schema": SCHEMA,
        "path": str(path),
        "runs": {state.value: number for state, number in results.counts().items()},
        "problems": [vars(problem) for problem in results.problems],
        "protocols": [as_dict(claims) for claims in judged],
    }


def _about_the_data(results: Results, labels: Sequence[str]) -> list[str]:
    """What was remarked about the datasets that the verdicts rest on, such as that one is not the official copy."""
    runs = (run for run in results.finished() if run.protocol in labels)
    remarks = dict.fromkeys((title(run.dataset), str(run.environment.get("note") or "")) for run in runs)
    return [f"the data of {name}: {note}" for name, note in remarks if note]


def _what_was_not_asked(results: Results, labels: Sequence[str], options: argparse.Namespace) -> list[str]:
    """What other options would tell."""
    words = []
    if options.bench is None and TIME in (options.only or CLAIMS):
        words.append(f"--bench FILE judges {TIME}, by what `headway bench` has measured")
    others = nearest_first(set(results.finished().protocols()) - set(labels))
    if others:
        such = f"such as {others[0]}: --protocol {shlex.quote(others[0])}, or --protocol {ALL}"
        words.append(f"there are runs of {count(len(others), 'other protocol')}, {such}")
    return words


def _say_what_is_missing(results: Results) -> None:
    """Warn of runs that do not count."""
    left = len(results) - len(results.finished())
    if left:
        complain(f"headway claims: {left} of {len(results)} runs are not finished and do not count")
    for problem in results.problems:
        complain(f"headway claims: {problem.id}: {problem.message}")


def measured_beside(path: Path) -> list[Path] | None:
    """The benchmarks that a checkout of headway has beside its results; None where there are none."""
    folder = path.absolute().parent / "benchmarks" / "results"
    files = [folder / f"{name}.json" for name in ("bench", "controlled-mnist", "controlled-cifar10")]
    return files if all(file.is_file() for file in files) else None


def read_bench(paths: Sequence[Path] | None) -> Mapping[str, Any] | None:
    """The results of benchmarks, with what the claims need; None without a file."""
    if not paths:
        return None
    found = [_read_one(path) for path in paths]
    return {kind: [one for content in found for one in content.get(kind, ())] for kind in ("cases", "loops")}


def _read_one(path: Path) -> dict[str, list[dict[str, Any]]]:
    """One file: cases of `headway bench`, or a loop of `benchmarks/controlled.py`."""
    try:
        content = json.loads(path.read_text("utf-8"))
        if "seconds" in content:
            batch = {name: float(content["seconds"][name]["batch"]) for name in ("gmc", "curiosity")}
            return {"loops": [{"inputs": int(content["inputs"]), "threads": int(content["threads"]), "batch": batch}]}
        return {"cases": [_checked_case(case) for case in content["cases"]]}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"expected the JSON that headway bench or benchmarks/controlled.py wrote at {path}, got something else "
            f"({error})"
        ) from error


def _checked_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case of a benchmark, with the fields that the claims read."""
    timings = [
        {
            "variant": str(timing["variant"]),
            "rounds": int(timing["rounds"]),
            "ratio": {name: float(timing["ratio"][name]) for name in ("low", "median", "high")},
        }
        for timing in case["timings"]
    ]
    return {"key": str(case["key"]), "timings": timings}


def _write(path: Path, text: str) -> None:
    """Write a file as a whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("make", path.parent, error) from error
    write_bytes(path, text.encode())
