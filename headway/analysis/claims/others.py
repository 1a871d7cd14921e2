"""The other claims: returns in MiniGrid with and without noise, what the signal costs, and a bound on its moments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from headway.analysis.claims.verdicts import (
    Evidence,
    Finding,
    Judgement,
    NoRunsError,
    TooLittleDataError,
    Verdict,
    all_positive,
    find,
    register,
)
from headway.analysis.rundata import Array, RunData
from headway.analysis.stats import Estimate, contrast
from headway.analysis.summaries import final_return
from headway.study.protocols.names import title

WITHOUT, WITH = "none", "door"
ROBUST, FRAGILE = ("icm+gmc", "gmc"), ("ppo", "icm")
RESAMPLES = 10_000
PROBABLE = "the probability of what the paper has, by bootstrap over seeds"


@register(
    "C14",
    "MiniGrid, no noise: final means in the order PPO, ICM+GMC, ICM, GMC (wide overlap)",
    "mean episode return over the last 10% of steps; differences with 95% intervals; " + PROBABLE,
    is_of_exploration=True,
)
def _order_without_noise(evidence: Evidence) -> Iterator[Finding]:
    order = ("ppo", "icm+gmc", "icm", "gmc")
    for env_id, counts in evidence.environments():
        yield _order(evidence, env_id, WITHOUT, order, counts)


@register(
    "C15",
    "MiniGrid, door noise: ICM+GMC, GMC, PPO, ICM (wide overlap); the drop from C14 is smaller for ICM+GMC and GMC",
    "mean episode return over the last 10% of steps, and the difference to no noise per method; " + PROBABLE,
    is_of_exploration=True,
)
def _order_with_noise(evidence: Evidence) -> Iterator[Finding]:
    for env_id, counts in evidence.environments():
        yield _order(evidence, env_id, WITH, ("icm+gmc", "gmc", "ppo", "icm"), counts)
        for method in ROBUST:
            part, paper = (
                f"{_short(env_id)}: loss of return to the noise, {title(method)}",
                "smaller than PPO's and ICM's",
            )
            yield find(part, paper, _smaller_drop, evidence, env_id, method, counts=counts)


def _order(evidence: Evidence, env_id: str, condition: str, order: Sequence[str], counts: bool) -> Finding:
    paper = " > ".join(map(title, order)) + " (tentative)"
    part = f"{_short(env_id)}: order of the final returns, {title(condition)}"
    return find(part, paper, _in_order, evidence, env_id, condition, order, counts=counts)


def _short(env_id: str) -> str:
    """The name of an environment without the library's and the version, such as "DoorKey-8x8"."""
    return env_id.removeprefix("MiniGrid-").removesuffix("-v0")


def _in_order(evidence: Evidence, env_id: str, condition: str, order: Sequence[str]) -> Judgement:
    rewards = {method: _rewards(evidence, env_id, condition, method) for method in order}
    steps = list(pairwise(order))

    def make(confidence: float) -> list[Estimate]:
        return [contrast([rewards[better], rewards[worse]], (1, -1), confidence) for better, worse in steps]

    means = {method: float(values.mean()) for method, values in rewards.items()}
    found = " > ".join(f"{title(m)} {means[m]:.2f}" for m in sorted(means, key=lambda m: -means[m]))
    means_of = {
        method: _resampled_means(values, evidence.rng(), k) for k, (method, values) in enumerate(rewards.items())
    }
    chance = np.logical_and.reduce([means_of[better] > means_of[worse] for better, worse in steps]).mean()
    found = f"{found}; the paper's order has probability {chance:.2f} ({1 / math.factorial(len(order)):.2f} by chance)"
    return all_positive(make, [f"{title(better)} > {title(worse)}" for better, worse in steps], found)


def _smaller_drop(evidence: Evidence, env_id: str, method: str) -> Judgement:
    """Does noise cost this method less than each of the fragile ones?"""
    methods = (method, *FRAGILE)
    rewards = {(m, c): _rewards(evidence, env_id, c, m) for m in methods for c in (WITHOUT, WITH)}

    def make(confidence: float) -> list[Estimate]:
        return [
            contrast([rewards[m, c] for m in (other, method) for c in (WITHOUT, WITH)], (1, -1, -1, 1), confidence)
            for other in FRAGILE
        ]

    drops = {m: float(rewards[m, WITHOUT].mean() - rewards[m, WITH].mean()) for m in methods}
    found = ", ".join(f"{title(m)} {drop:.2f}" for m, drop in drops.items())
    means_of = {key: _resampled_means(values, evidence.rng(), k) for k, (key, values) in enumerate(rewards.items())}
    lost = {m: means_of[m, WITHOUT] - means_of[m, WITH] for m in methods}
    chance = np.logical_and.reduce([lost[method] < lost[other] for other in FRAGILE]).mean()
    found = f"{found}; that it loses least has probability {chance:.2f} (0.33 by chance)"
    return all_positive(make, [f"less than {title(other)}" for other in FRAGILE], found)


def _resampled_means(values: Array, rng: np.random.Generator, place: int) -> Array:
    """Means of values [n] drawn with replacement, [resamples]; each place has a stream of its own."""
    drawn = rng.spawn(place + 1)[place].integers(0, len(values), (RESAMPLES, len(values)))
    return np.asarray(values[drawn].mean(1))


def _rewards(evidence: Evidence, env_id: str, condition: str, method: str) -> Array:
    """The final return of each run [n], in the environment's own unit."""
    runs = evidence.exploration(env_id, condition, method)
    rewards = np.array([final_return(run) for run in runs])
    if not np.isfinite(rewards).all():
        raise TooLittleDataError(f"a run of {runs[0].group.title}, {title(method)} ends without an episode")
    return rewards


NOTICEABLE = 1.1  # A step with scores is noticeably slower when it takes more than this many plain ones
PAPER_CASES = {"a": "the MNIST classifier", "b": "the CIFAR-10 classifier"}
PAPER_BATCHES = {784: ("MNIST", "1.02 (33:20 / 32:40 minutes of whole runs, on a GPU)"), 3072: ("CIFAR-10", "about 1")}
"""The whole batches of the study that were timed, by the pixels of an image."""
BOUND_COLUMN = "momentum_within_bound"  # Share of the parameters with m^2 <= v, which runs may log


@register(
    "C16",
    "the signal costs no noticeable time",
    "time of the model's step against the plain step, and of a whole batch of the study with GMC against one "
    f"with Curiosity, as the paper timed it; each measured in turn; noticeable: more than {NOTICEABLE} times",
)
def _cost_in_time(evidence: Evidence) -> Iterator[Finding]:
    for key, name in PAPER_CASES.items():
        yield find(f"step with scores / plain step, {name}", "about 1", _ratio, evidence.bench, key)
    for inputs, (name, paper) in PAPER_BATCHES.items():
        part = f"batch of the study, GMC / Curiosity, the {name} classifier"
        yield find(part, paper, _batch_ratio, evidence.bench, inputs)


@register(
    "C17",
    "with equal decay rates m^2 <= v in every parameter",
    f"the metric {BOUND_COLUMN} of every finished run that has it",
)
def _bound_on_momentum(evidence: Evidence) -> Iterator[Finding]:
    yield find("least share of parameters within the bound", "all of them", _within_bound, evidence)


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
