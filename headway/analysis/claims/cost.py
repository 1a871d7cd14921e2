"""Claims that rest on a benchmark or on the state of a run: what the signal costs, and a bound on its moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from headway.analysis.claims.evaluation import Evidence, register
from headway.analysis.claims.verdicts import Finding, Judgement, NoRunsError, Verdict, find
from headway.analysis.rundata import RunData
from headway.analysis.stats import Estimate

NOTICEABLE = 1.1
"""A step with scores is noticeably slower when it takes more than this many plain ones."""
PAPER_CASES = {"a": "the MNIST classifier", "b": "the CIFAR-10 classifier"}
PAPER_BATCHES = {784: ("MNIST", "1.02 (33:20 / 32:40 minutes of whole runs, on a GPU)"), 3072: ("CIFAR-10", "about 1")}
"""The whole batches of the study that were timed, by the pixels of an image."""
BOUND_COLUMN = "momentum_within_bound"
"""Share of the parameters with m^2 <= v, which runs may log."""


@register(
    "C16",
    "the signal costs no noticeable time",
    "time of the model's step against the plain step, and of a whole batch of the study with GMC against one "
    f"with Curiosity, as the paper timed it; each measured in turn; noticeable: more than {NOTICEABLE} times",
)
def cost_in_time(evidence: Evidence) -> Iterator[Finding]:
    """Judge C16."""
    for key, name in PAPER_CASES.items():
        yield find(f"step with scores / plain step, {name}", "about 1", partial(_ratio, evidence.bench, key))
    for inputs, (name, paper) in PAPER_BATCHES.items():
        judge = partial(_batch_ratio, evidence.bench, inputs)
        yield find(f"batch of the study, GMC / Curiosity, the {name} classifier", paper, judge)


@register(
    "C17",
    "with equal decay rates m^2 <= v in every parameter",
    f"the metric {BOUND_COLUMN} of every finished run that has it",
)
def bound_on_momentum(evidence: Evidence) -> Iterator[Finding]:
    """Judge C17."""
    yield find("least share of parameters within the bound", "all of them", partial(_within_bound, evidence))


def _ratio(bench: Mapping[str, Any] | None, key: str) -> Judgement:
    if bench is None:
        raise NoRunsError("no benchmark was given; run headway bench and name its JSON file with --bench")
    try:
        case = next(case for case in bench["cases"] if case["key"] == key)
        timing = next(timing for timing in case["timings"] if timing["variant"] == "headway")
        low, median, high = (float(timing["ratio"][name]) for name in ("low", "median", "high"))
        estimate = Estimate(median, low, high, int(timing["rounds"]))
    except StopIteration:
        raise NoRunsError("the benchmark did not measure it") from None
    text = f"{estimate.text('.2f')} (median and quartiles of {estimate.n} rounds)"
    if estimate.is_below(NOTICEABLE):
        return Judgement(Verdict.REPRODUCED, text, 0, "", estimate)
    if estimate.is_above(NOTICEABLE):
        return Judgement(Verdict.CONTRADICTED, text, 0, "", estimate)
    return Judgement(Verdict.UNDECIDED, text, 0, f"the quartiles enclose {NOTICEABLE}", estimate)


def _batch_ratio(bench: Mapping[str, Any] | None, inputs: int) -> Judgement:
    """A whole batch with GMC against one with Curiosity, which needs no scores of gradients: medians of one run."""
    loops = (bench or {}).get("loops", ())
    loop = next((loop for loop in loops if loop["inputs"] == inputs), None)
    if loop is None:
        raise NoRunsError("no measurement was given; run benchmarks/controlled.py and name its JSON file with --bench")
    ratio = loop["batch"]["gmc"] / loop["batch"]["curiosity"]
    threads = f"{loop['threads']} thread{'s' if loop['threads'] > 1 else ''}"
    text = f"{ratio:.2f} ({1e3 * loop['batch']['gmc']:.1f} / {1e3 * loop['batch']['curiosity']:.1f} ms, {threads})"
    return Judgement(Verdict.CONTRADICTED if ratio > NOTICEABLE else Verdict.REPRODUCED, text, 0)


def _within_bound(evidence: Evidence) -> Judgement:
    own = evidence.results.select(protocol=evidence.protocol).finished()
    runs = [run for run in own if BOUND_COLUMN in run.columns and run.rows and _has_equal_rates(run)]
    if not runs:
        raise NoRunsError(f"no run with equal decay rates has the metric {BOUND_COLUMN}")
    shares = np.concatenate([run.columns[BOUND_COLUMN] for run in runs])
    known = shares[np.isfinite(shares)]
    least = float(known.min()) if len(known) else float("nan")
    text = f"{100 * least:.6g}% in {'the run' if len(runs) == 1 else f'the {len(runs)} runs'} that logged it"
    if least < 1:
        return Judgement(Verdict.CONTRADICTED, text, 0)
    if len(known) < len(shares):
        why = f"the share is not a number in {len(shares) - len(known)} of {len(shares)} epochs"
        return Judgement(Verdict.UNDECIDED, text, 0, why)
    return Judgement(Verdict.REPRODUCED, text, 0)


def _has_equal_rates(run: RunData) -> bool:
    protocol = run.spec.protocol
    return protocol.get("beta_v") in (None, protocol.get("beta"))
