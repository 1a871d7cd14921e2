"""Claims about what signals draw: in which order, how much of the noise, and what that does to the losses.

Also what the signal costs, and a bound on its moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from headway.analysis import summaries
from headway.analysis.claims.areas import Decide, area_ratio
from headway.analysis.claims.verdicts import (
    BySeed,
    Condition,
    Evidence,
    Finding,
    Judgement,
    NoRunsError,
    TooLittleDataError,
    Verdict,
    above,
    all_positive,
    below,
    find,
    finite,
    paired,
    register,
    within,
)
from headway.analysis.rundata import RunData
from headway.analysis.stats import Estimate, ratio, t_interval
from headway.analysis.summaries import group_losses, group_shares, head, tail
from headway.study.protocols.names import GROUP_NAMES, GROUPS, title

NAMES = GROUP_NAMES["curriculum"]
UNIFORM = tuple(len(group) / sum(map(len, GROUPS)) for group in GROUPS)
"""Each group's share of uniform draws from classes."""
QUARTER = 1 / len(GROUPS)  # Each group's share of uniform draws from groups, as in the noise condition
NEAR = 0.1  # Shares are near uniform when none of them is off 1/4 by this much
LEVEL = 0.25  # A share counts as level when it is off the uniform one by less than this part of it
RESAMPLES = 2000
PEAK_SEEDS = 8
"""Fewer seeds decide no order of peaks: a bootstrap of three has ten different samples, and calls chance an order."""


# The curriculum condition.


@register(
    "C1",
    "CIFAR-10 curriculum, Uniform: losses plateau in the order G0 < G1 < G3 < G2",
    "mean test loss per group, last 10% of epochs",
)
def _plateau_order(evidence: Evidence) -> Iterator[Finding]:
    for on in evidence.conditions("curriculum", ("cifar10",)):
        yield on.find("order of the last losses", "G0 < G1 < G3 < G2", _loss_order, (0, 1, 3, 2))


@register(
    "C2",
    "CIFAR-10 curriculum: Curiosity's visits peak in the order G3, G2, G1, G0; GMC's in the order G0, G1, G3, G2",
    "epoch of the maximum of the smoothed train count, on the mean over seeds; of Curiosity's G0 the maximum after its "
    "fall at the start, as the text says; intervals by bootstrap over seeds",
)
def _peaks_cifar(evidence: Evidence) -> Iterator[Finding]:
    for on in evidence.conditions("curriculum", ("cifar10",)):
        falling = summaries.FALLS_AT_FIRST["curiosity"]
        yield _peaks(on, "curiosity", (3, 2, 1, 0), f" ({NAMES[0]}: its second peak, after the first fall)", falling)
        yield _peaks(on, "gmc", (1, 3, 2))
        yield _peaks(on, "gmc", (0, 1), " (the paper calls G0 less clear)", counts=False)


@register(
    "C3",
    "curriculum: Curiosity contracts the groups' losses, GMC spreads them, relative to Uniform",
    "standard deviation over groups of the test loss, averaged over epochs, relative to Uniform's",
)
def _spread_of_losses(evidence: Evidence) -> Iterator[Finding]:
    spread, without_first = summaries.loss_spread, partial(summaries.loss_spread, first=1)
    for on in evidence.conditions("curriculum"):
        part, words = "spread of the losses", " of Uniform's"
        for method, decide, paper in (("curiosity", below, "below Uniform's"), ("gmc", above, "above Uniform's")):
            yield on.find(f"{part}, {title(method)}", paper, _ratio, method, "uniform", spread, decide, ".3f", words)
        part, paper = f"{part} of {NAMES[1]} to {NAMES[-1]}, GMC", "above Uniform's (the paper looks at all four)"
        yield on.find(part, paper, _ratio, "gmc", "uniform", without_first, above, ".3f", words, counts=False)


@register(
    "C4",
    "MNIST curriculum: GMC visits groups in the order 2, 3, 1; Curiosity 3, 2, 1",
    "epoch of the maximum of the smoothed train count, on the mean over seeds; intervals by bootstrap over seeds",
)
def _peaks_mnist(evidence: Evidence) -> Iterator[Finding]:
    for on in evidence.conditions("curriculum", ("mnist",)):
        yield _peaks(on, "gmc", (2, 3, 1))
        yield _peaks(on, "curiosity", (3, 2, 1))


@register(
    "C11",
    "MNIST curriculum: after the easy groups saturate GMC boosts the unsaturated group; NormAll only brings it level",
    "share of draws of the hardest group (highest last loss under Uniform) in the second half, per class",
)
def _boost_of_the_hardest(evidence: Evidence) -> Iterator[Finding]:
    level = 1 - LEVEL, 1 + LEVEL
    for on in evidence.conditions("curriculum", ("mnist",)):
        yield on.find("GMC's share of the hardest group", "above uniform", _boosted, "gmc", above, 1.0)
        yield on.find("NormAll's share of it", "about level with the others", _boosted, "norm_all", within, *level)
        yield on.find("GMC's share against NormAll's", "GMC's is higher", _more_boosted)


# Variants of GMC, in the curriculum condition.


@register(
    "C12",
    "ablation, CIFAR-10: Cosine oversamples the easiest group early and its allocation fluctuates",
    "share of G0 in the first 10% of epochs; epoch-to-epoch variance of the shares, relative to GMC's",
)
def _cosine(evidence: Evidence) -> Iterator[Finding]:
    fluctuation = summaries.share_fluctuation
    for on in evidence.conditions("curriculum", ("cifar10",)):
        part, paper = "Cosine's early share of G0", f"above {UNIFORM[0]:.1f}"
        yield on.find(part, paper, _mean, "cosine", lambda run: head(group_shares(run))[:, 0].mean(), above, UNIFORM[0])
        part = "fluctuation of Cosine / GMC"
        yield on.find(part, "above 1", _ratio, "cosine", "gmc", fluctuation, above, ".3g")


@register(
    "C13",
    "ablation, CIFAR-10: Dot Product's allocation is closer to uniform than GMC's, with a slightly slower loss",
    "distance to uniform (half the sum of the shares' distances, averaged over epochs); AUC relative to GMC's",
)
def _dot_product(evidence: Evidence) -> Iterator[Finding]:
    distance = summaries.distance_to_uniform
    for on in evidence.conditions("curriculum", ("cifar10",)):
        part = "distance to uniform, Dot Product / GMC"
        yield on.find(part, "below 1", _ratio, "dot", "gmc", distance, below, ".3f")
        yield on.find("AUC, Dot Product / GMC", "slightly above 1", area_ratio, "dot", "gmc", above, 1.0)


# The noise condition.


@register(
    "C5",
    "noise, both datasets: Curiosity over-allocates to the noisiest group",
    "share of draws of group D in the last 10% of epochs",
)
def _curiosity_follows_noise(evidence: Evidence) -> Iterator[Finding]:
    limit = QUARTER + NEAR
    for on in evidence.conditions("noise"):
        paper = f"far above 1/4 (here: > {limit})"
        yield on.find("Curiosity's share of D", paper, _mean, "curiosity", partial(_last_share, 3), above, limit)


@register(
    "C6",
    "noise: GMC's allocation is near uniform, slightly against the clean group A",
    "shares of A to D, last 10% of epochs, distance to 1/4",
)
def _gmc_ignores_noise(evidence: Evidence) -> Iterator[Finding]:
    for on in evidence.conditions("noise"):
        yield on.find("greatest distance of a share to 1/4", f"small (here: < {NEAR})", _near)
        part, paper = "share of the clean group A", "slightly below 1/4"
        yield on.find(part, paper, _mean, "gmc", partial(_last_share, 0), below, QUARTER)


def _mean(on: Condition, method: str, measure: Callable[[RunData], float], decide: Decide, limit: float) -> Judgement:
    """How large is a measure of a signal's runs?"""
    estimate = t_interval([float(measure(run)) for run in on.runs(method)])
    return decide(estimate, limit, estimate.text(".3f"))


def _last_share(group: int, run: RunData) -> float:
    return float(tail(group_shares(run)).mean(0)[group])


def _near(on: Condition) -> Judgement:
    shares = np.array([tail(group_shares(run)).mean(0) for run in on.runs("gmc")])
    estimate = t_interval(abs(shares - QUARTER).max(1))
    mean = "/".join(f"{100 * share:.0f}" for share in shares.mean(0))
    return below(estimate, NEAR, f"{mean} % of {'/'.join(GROUP_NAMES['noise'])}; off by {estimate.text('.3f')}")


def _ratio(
    on: Condition,
    method: str,
    other: str,
    measure: Callable[[RunData], float],
    decide: Decide,
    form: str,
    words: str = "",
) -> Judgement:
    """How does a measure of a signal's runs compare with another's, seed by seed?"""
    estimate = ratio(*paired(on.values(method, measure), on.values(other, measure)))
    return decide(estimate, 1.0, f"{estimate.text(form)}{words}")


def _boosted(on: Condition, method: str, decide: Decide, *limits: float) -> Judgement:
    estimate = t_interval(list(_boost(on, method).values()))
    return decide(estimate, *limits, f"{estimate.text('.3f')} times uniform")


def _more_boosted(on: Condition) -> Judgement:
    gmc, norm_all = paired(_boost(on, "gmc"), _boost(on, "norm_all"))
    estimate = t_interval(gmc - norm_all)
    return above(estimate, 0.0, f"higher by {estimate.text('.3f')} times uniform")


def _boost(on: Condition, method: str) -> BySeed:
    """Share of the hardest group in the second half of each run, as a multiple of its share under uniform draws.

    It is the group with the highest loss at the end of the runs of Uniform.
    """
    uniform = on.runs("uniform")
    losses = {run.seed: tail(group_losses(run)).mean(0) for run in uniform}
    finite({seed: float(each.sum()) for seed, each in losses.items()}, uniform[0])
    hardest = int(np.mean(list(losses.values()), axis=0).argmax())
    shares = {run.seed: tail(group_shares(run), 0.5)[:, hardest] for run in on.runs(method)}
    return {seed: float(share.mean()) / UNIFORM[hardest] for seed, share in shares.items()}


def _loss_order(on: Condition, order: Sequence[int]) -> Judgement:
    """Do the groups' last losses under Uniform ascend in this order? Compared within each run."""
    losses = np.array([tail(group_losses(run)).mean(0) for run in on.runs("uniform")])
    steps = list(pairwise(order))

    def make(confidence: float) -> list[Estimate]:
        return [t_interval(losses[:, after] - losses[:, before], confidence) for before, after in steps]

    means = losses.mean(0)
    found = " < ".join(f"{NAMES[g]} {means[g]:.3f}" for g in sorted(order, key=lambda g: float(means[g])))
    return all_positive(make, [f"{NAMES[before]} < {NAMES[after]}" for before, after in steps], found)


def _peaks(
    on: Condition,
    method: str,
    order: Sequence[int],
    remark: str = "",
    after_fall: Sequence[int] = (),
    counts: bool = True,
) -> Finding:
    part, paper = f"order of the peaks, {title(method)}", ", ".join(NAMES[g] for g in order) + remark
    return on.find(part, paper, _peak_order, method, order, after_fall, counts=counts)


def _peak_order(on: Condition, method: str, order: Sequence[int], after_fall: Sequence[int]) -> Judgement:
    """Do the visits of the groups peak in this order?"""
    runs = on.runs(method)
    shares = np.array([summaries.smooth(summaries.group_shares_per_arm(run)) for run in runs])
    if not np.isfinite(shares).all():
        raise TooLittleDataError(f"a run of {runs[0].group.title}, {title(method)} has an epoch without draws")
    peaks, places = summaries.peak_epochs(runs, after_fall), summaries.epochs(runs[0])
    befores, afters = list(order[:-1]), list(order[1:])
    n = len(runs)
    weights = on.evidence.rng().multinomial(n, np.full(n, 1 / n), RESAMPLES) / n  # of seeds drawn with replacement
    drawn = np.array([summaries.weighted_peaks(shares, places, row, after_fall) for row in weights])
    gaps = drawn[:, afters] - drawn[:, befores]

    def make(confidence: float) -> list[Estimate]:
        low, high = np.quantile(gaps, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
        value = peaks[afters] - peaks[befores]
        return [Estimate(float(v), float(x), float(y), n) for v, x, y in zip(value, low, high, strict=True)]

    found = ", ".join(f"{NAMES[g]} at {peaks[g]:.0f}" for g in sorted(order, key=lambda g: float(peaks[g])))
    links = [f"{NAMES[a]} before {NAMES[b]}" for a, b in pairwise(order)]
    return all_positive(make, links, f"{found} (epochs)", PEAK_SEEDS)


# What the signal costs, and a bound on its moments.

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
        yield find(f"step with scores / plain step, {name}", "about 1", _step_ratio, evidence.bench, key)
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


def _step_ratio(bench: Mapping[str, Any] | None, key: str) -> Judgement:
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
    if estimate.covers(NOTICEABLE):
        return Judgement(Verdict.UNDECIDED, text, 0, f"the quartiles enclose {NOTICEABLE}", estimate)
    verdict = Verdict.REPRODUCED if estimate.is_below(NOTICEABLE) else Verdict.CONTRADICTED
    return Judgement(verdict, text, 0, "", estimate)


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
    rates = [(run, run.spec.protocol.get("beta"), run.spec.protocol.get("beta_v")) for run in own]
    runs = [run for run, beta, beta_v in rates if BOUND_COLUMN in run.columns and run.rows and beta_v in (None, beta)]
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
