"""The command `headway claims`: what runs say about the paper's claims."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.analysis.claims import CLAIMS, evaluate_claims
from headway.analysis.claims.formats import SCHEMA, as_dict, as_markdown, as_text, parts_table
from headway.analysis.results import Results, load_results
from headway.commands.options import BENCH_HELP, add_format_option, add_runs_argument, make_folder, whole
from headway.errors import UsageError, check_known
from headway.runs.files import write_bytes
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
    check_known("claims", options.only or (), sorted(CLAIMS, key=lambda name: int(name[1:])), UsageError)
    judged = [evaluate_claims(results, label, bench, options.seed, options.only) for label in labels]
    if left := len(results) - len(results.finished()):
        complain(f"headway claims: {left} of {len(results)} runs are not finished and do not count")
    for problem in results.problems:
        complain(f"headway claims: {problem.id}: {problem.message}")
    document = {
        "schema": SCHEMA,
        "path": str(options.path),
        "runs": {state.value: number for state, number in results.counts().items()},
        "problems": [vars(problem) for problem in results.problems],
        "protocols": [as_dict(claims) for claims in judged],
    }
    made: dict[str, Callable[[], str]] = {
        "text": lambda: "\n\n".join(as_text(claims, verbose=not options.brief) for claims in judged) + "\n",
        "markdown": lambda: "\n".join(f"## Protocol: {each[0].protocol}\n\n{as_markdown(each)}" for each in judged),
        "json": lambda: json.dumps(document, indent=1) + "\n",
        "csv": lambda: parts_table(judged).csv(),
    }
    emit(made[options.format]().rstrip("\n"))
    if options.format == "text":
        for remark in _remarks(results, labels, options):
            emit(remark)
    for kind in ("json", "markdown"):
        if path := getattr(options, kind):
            make_folder(path.parent)
            write_bytes(path, made[kind]().encode())
    return 0


def choose_protocols(results: Results, asked: str | None) -> list[str]:
    """The labels of the protocols to judge by; none asked for means the released one, or all if that has no run."""
    known = results.finished().protocols()
    if asked == ALL:
        return list(known) or [STANDARD]
    if asked is None:
        return [STANDARD] if STANDARD in known or not known else list(known)
    if asked not in known:
        there = "; ".join(known) or "none"
        raise UsageError(f"expected the protocol of a finished run ({there}), or {ALL}, got {asked!r}")
    return [asked]


def _remarks(results: Results, labels: Sequence[str], options: argparse.Namespace) -> list[str]:
    """What is known of the datasets, such as that one is not the official copy; and what other options would tell."""
    runs = (run for run in results.finished() if run.protocol in labels)
    notes = dict.fromkeys((title(run.dataset), str(run.environment.get("note") or "")) for run in runs)
    words = [f"the data of {name}: {note}" for name, note in notes if note]
    if options.bench is None and TIME in (options.only or CLAIMS):
        words.append(f"--bench FILE judges {TIME}, by what `headway bench` has measured")
    others = nearest_first(set(results.finished().protocols()) - set(labels))
    if others:
        such = f"such as {others[0]}: --protocol {shlex.quote(others[0])}, or --protocol {ALL}"
        words.append(f"there are runs of {count(len(others), 'other protocol')}, {such}")
    return words


def measured_beside(path: Path) -> list[Path] | None:
    """The benchmarks that a checkout of headway has beside its results; None where there are none."""
    folder = path.absolute().parent / "benchmarks" / "results"
    files = [folder / f"{name}.json" for name in ("bench", "controlled-mnist", "controlled-cifar10")]
    return files if all(file.is_file() for file in files) else None


def read_bench(paths: Sequence[Path] | None) -> Mapping[str, Any] | None:
    """The results of benchmarks, with what the claims need; None without a file.

    A file has the cases of `headway bench`, or a loop of `benchmarks/controlled.py`.
    """
    found: dict[str, list[dict[str, Any]]] = {"cases": [], "loops": []}
    for path in paths or ():
        try:
            content = json.loads(path.read_text("utf-8"))
            if "seconds" in content:
                batch = {name: float(content["seconds"][name]["batch"]) for name in ("gmc", "curiosity")}
                own = {"inputs": int(content["inputs"]), "threads": int(content["threads"]), "batch": batch}
                found["loops"].append(own)
            else:
                found["cases"] += map(_checked_case, content["cases"])
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"expected the JSON that headway bench or benchmarks/controlled.py wrote at {path}, got something else "
                f"({error})"
            ) from error
    return found if paths else None


def _checked_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case of a benchmark, with the fields that the claims read."""
    timings = []
    for timing in case["timings"]:
        ratio = {name: float(timing["ratio"][name]) for name in ("low", "median", "high")}
        timings.append({"variant": str(timing["variant"]), "rounds": int(timing["rounds"]), "ratio": ratio})
    return {"key": str(case["key"]), "timings": timings}
