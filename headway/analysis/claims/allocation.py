"""Claims about what signals draw: in which order, how much of the noise, and what that does to the losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from headway.analysis import summaries
from headway.analysis.claims.verdicts import (
    Evidence,
    Finding,
    Judgement,
    TooLittleDataError,
    above,
    all_positive,
    below,
    find,
    finite,
    paired,
    register,
    within,
)
from headway.analysis.rundata import Array, RunData
from headway.analysis.stats import Estimate, ratio, t_interval
from headway.analysis.summaries import group_losses, group_shares, tail
from headway.analysis.tables import relative_area
from headway.study.protocols.names import GROUP_NAMES, GROUPS, title

Decide: TypeAlias = Callable[..., Judgement]

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
    for dataset, counts in evidence.datasets("curriculum", ("cifar10",)):
        part, paper = f"{title(dataset)}: order of the last losses", "G0 < G1 < G3 < G2"
        yield find(part, paper, _loss_order, evidence, dataset, (0, 1, 3, 2), counts=counts)


@register(
    "C2",
    "CIFAR-10 curriculum: Curiosity's visits peak in the order G3, G2, G1, G0; GMC's in the order G0, G1, G3, G2",
    "epoch of the maximum of the smoothed train count, on the mean over seeds; of Curiosity's G0 the maximum after its "
    "fall at the start, as the text says; intervals by bootstrap over seeds",
)
def _peaks_cifar(evidence: Evidence) -> Iterator[Finding]:
    for dataset, counts in evidence.datasets("curriculum", ("cifar10",)):
        remark = f" ({NAMES[0]}: its second peak, after the first fall)"
        yield _peak_order(
            evidence, dataset, "curiosity", (3, 2, 1, 0), counts, remark, summaries.FALLS_AT_FIRST["curiosity"]
        )
        yield _peak_order(evidence, dataset, "gmc", (1, 3, 2), counts)
        yield _peak_order(evidence, dataset, "gmc", (0, 1), False, " (the paper calls G0 less clear)")


@register(
    "C3",
    "curriculum: Curiosity contracts the groups' losses, GMC spreads them, relative to Uniform",
    "standard deviation over groups of the test loss, averaged over epochs, relative to Uniform's",
)
def _spread_of_losses(evidence: Evidence) -> Iterator[Finding]:
    for dataset, counts in evidence.datasets("curriculum"):
        name = f"{title(dataset)}: spread of the losses"
        for method, decide, paper in (("curiosity", below, "below Uniform's"), ("gmc", above, "above Uniform's")):
            part = f"{name}, {title(method)}"
            yield find(part, paper, _relative_spread, evidence, dataset, method, decide, counts=counts)
        part, paper = f"{name} of {NAMES[1]} to {NAMES[-1]}, GMC", "above Uniform's (the paper looks at all four)"
        yield find(part, paper, _relative_spread, evidence, dataset, "gmc", above, 1, counts=False)


@register(
    "C4",
    "MNIST curriculum: GMC visits groups in the order 2, 3, 1; Curiosity 3, 2, 1",
    "epoch of the maximum of the smoothed train count, on the mean over seeds; intervals by bootstrap over seeds",
)
def _peaks_mnist(evidence: Evidence) -> Iterator[Finding]:
    for dataset, counts in evidence.datasets("curriculum", ("mnist",)):
        yield _peak_order(evidence, dataset, "gmc", (2, 3, 1), counts)
        yield _peak_order(evidence, dataset, "curiosity", (3, 2, 1), counts)


@register(
    "C11",
    "MNIST curriculum: after the easy groups saturate GMC boosts the unsaturated group; NormAll only brings it level",
    "share of draws of the hardest group (highest last loss under Uniform) in the second half, per class",
)
def _boost_of_the_hardest(evidence: Evidence) -> Iterator[Finding]:
    for dataset, counts in evidence.datasets("curriculum", ("mnist",)):
        name = title(dataset)
        boosted = partial(_boosted, evidence, dataset)
        yield find(
            f"{name}: GMC's share of the hardest group", "above uniform", boosted, "gmc", above, 1.0, counts=counts
        )
        level, paper = (1 - LEVEL, 1 + LEVEL), "about level with the others"
        yield find(f"{name}: NormAll's share of it", paper, boosted, "norm_all", within, *level, counts=counts)
        part = f"{name}: GMC's share against NormAll's"
        yield find(part, "GMC's is higher", _more_boosted, evidence, dataset, counts=counts)


# Variants of GMC, in the curriculum condition.


@register(
    "C12",
    "ablation, CIFAR-10: Cosine oversamples the easiest group early and its allocation fluctuates",
    "share of G0 in the first 10% of epochs; epoch-to-epoch variance of the shares, relative to GMC's",
)
def _cosine(evidence: Evidence) -> Iterator[Finding]:
    for dataset, counts in evidence.datasets("curriculum", ("cifar10",)):
        part, paper = f"{title(dataset)}: Cosine's early share of G0", f"above {UNIFORM[0]:.1f}"
        yield find(part, paper, _early_share, evidence, dataset, counts=counts)
        fluctuates = partial(_against_gmc, evidence, dataset, "cosine", summaries.share_fluctuation, above, ".3g")
        yield find(f"{title(dataset)}: fluctuation of Cosine / GMC", "above 1", fluctuates, counts=counts)


@register(
    "C13",
    "ablation, CIFAR-10: Dot Product's allocation is closer to uniform than GMC's, with a slightly slower loss",
    "distance to uniform (half the sum of the shares' distances, averaged over epochs); AUC relative to GMC's",
)
def _dot_product(evidence: Evidence) -> Iterator[Finding]:
    for dataset, counts in evidence.datasets("curriculum", ("cifar10",)):
        closer = partial(_against_gmc, evidence, dataset, "dot", summaries.distance_to_uniform, below, ".3f")
        yield find(f"{title(dataset)}: distance to uniform, Dot Product / GMC", "below 1", closer, counts=counts)
        part, paper = f"{title(dataset)}: AUC, Dot Product / GMC", "slightly above 1"
        yield find(part, paper, _slower, evidence, dataset, counts=counts)


# The noise condition.


@register(
    "C5",
    "noise, both datasets: Curiosity over-allocates to the noisiest group",
    "share of draws of group D in the last 10% of epochs",
)
def _curiosity_follows_noise(evidence: Evidence) -> Iterator[Finding]:
    limit = QUARTER + NEAR
    for dataset, counts in evidence.datasets("noise"):
        part, paper = f"{title(dataset)}: Curiosity's share of D", f"far above 1/4 (here: > {limit})"
        yield find(part, paper, _share_of, evidence, dataset, "curiosity", 3, above, limit, counts=counts)


@register(
    "C6",
    "noise: GMC's allocation is near uniform, slightly against the clean group A",
    "shares of A to D, last 10% of epochs, distance to 1/4",
)
def _gmc_ignores_noise(evidence: Evidence) -> Iterator[Finding]:
    for dataset, counts in evidence.datasets("noise"):
        part, paper = f"{title(dataset)}: greatest distance of a share to 1/4", f"small (here: < {NEAR})"
        yield find(part, paper, _near, evidence, dataset, counts=counts)
        part, paper = f"{title(dataset)}: share of the clean group A", "slightly below 1/4"
        yield find(part, paper, _share_of, evidence, dataset, "gmc", 0, below, QUARTER, counts=counts)


def _relative_spread(evidence: Evidence, dataset: str, method: str, decide: Decide, first: int = 0) -> Judgement:
    spread = partial(summaries.loss_spread, first=first)
    ours = evidence.values(dataset, "curriculum", method, spread)
    estimate = ratio(*paired(ours, evidence.values(dataset, "curriculum", "uniform", spread)))
    return decide(estimate, 1.0, f"{estimate.text('.3f')} of Uniform's")


def _boosted(evidence: Evidence, dataset: str, method: str, decide: Decide, *limits: float) -> Judgement:
    estimate = t_interval(list(_boost(evidence, dataset, method).values()))
    return decide(estimate, *limits, f"{estimate.text('.3f')} times uniform")


def _more_boosted(evidence: Evidence, dataset: str) -> Judgement:
    gmc, norm_all = paired(_boost(evidence, dataset, "gmc"), _boost(evidence, dataset, "norm_all"))
    estimate = t_interval(gmc - norm_all)
    return above(estimate, 0.0, f"higher by {estimate.text('.3f')} times uniform")


def _boost(evidence: Evidence, dataset: str, method: str) -> Mapping[int, float]:
    """Share of the hardest group in the second half of each run, as a multiple of its share under uniform draws."""
    hardest = _hardest(evidence.runs(dataset, "curriculum", "uniform"))
    runs = evidence.runs(dataset, "curriculum", method)
    return {run.seed: float(tail(group_shares(run), 0.5)[:, hardest].mean()) / UNIFORM[hardest] for run in runs}


def _hardest(runs: Sequence[RunData]) -> int:
    """The group with the highest loss at the end."""
    losses = {run.seed: tail(group_losses(run)).mean(0) for run in runs}
    finite({seed: float(each.sum()) for seed, each in losses.items()}, runs[0])
    return int(np.mean(list(losses.values()), axis=0).argmax())


def _loss_order(evidence: Evidence, dataset: str, order: Sequence[int]) -> Judgement:
    """Do the groups' last losses ascend in this order? Compared within each run."""
    runs = evidence.runs(dataset, "curriculum", "uniform")
    losses = np.array([tail(group_losses(run)).mean(0) for run in runs])
    steps = list(pairwise(order))

    def make(confidence: float) -> list[Estimate]:
        return [t_interval(losses[:, after] - losses[:, before], confidence) for before, after in steps]

    means = losses.mean(0)
    found = " < ".join(f"{NAMES[g]} {means[g]:.3f}" for g in sorted(order, key=lambda g: float(means[g])))
    return all_positive(make, [f"{NAMES[before]} < {NAMES[after]}" for before, after in steps], found)


def _peak_order(
    evidence: Evidence,
    dataset: str,
    method: str,
    order: Sequence[int],
    counts: bool,
    remark: str = "",
    after_fall: Sequence[int] = (),
) -> Finding:
    part, paper = f"{title(dataset)}: order of the peaks, {title(method)}", ", ".join(NAMES[g] for g in order) + remark
    return find(part, paper, _judge_peaks, evidence, dataset, method, order, after_fall, counts=counts)


def _judge_peaks(
    evidence: Evidence, dataset: str, method: str, order: Sequence[int], after_fall: Sequence[int]
) -> Judgement:
    """Do the visits of the groups peak in this order?"""
    runs = evidence.runs(dataset, "curriculum", method)
    shares = np.array([summaries.smooth(summaries.group_shares_per_arm(run)) for run in runs])
    if not np.isfinite(shares).all():
        raise TooLittleDataError(f"a run of {runs[0].group.title}, {title(method)} has an epoch without draws")
    peaks, places = summaries.peak_epochs(runs, after_fall), summaries.epochs(runs[0])
    befores, afters = list(order[:-1]), list(order[1:])
    n = len(runs)
    weights = evidence.rng().multinomial(n, np.full(n, 1 / n), RESAMPLES) / n  # of seeds drawn with replacement
    drawn = np.array([summaries.weighted_peaks(shares, places, row, after_fall) for row in weights])
    gaps = drawn[:, afters] - drawn[:, befores]

    def make(confidence: float) -> list[Estimate]:
        low, high = np.quantile(gaps, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
        value = peaks[afters] - peaks[befores]
        return [Estimate(float(v), float(x), float(y), n) for v, x, y in zip(value, low, high, strict=True)]

    found = ", ".join(f"{NAMES[g]} at {peaks[g]:.0f}" for g in sorted(order, key=lambda g: float(peaks[g])))
    links = [f"{NAMES[a]} before {NAMES[b]}" for a, b in pairwise(order)]
    return all_positive(make, links, f"{found} (epochs)", PEAK_SEEDS)


def _early_share(evidence: Evidence, dataset: str) -> Judgement:
    values = evidence.values(
        dataset, "curriculum", "cosine", lambda run: summaries.head(group_shares(run))[:, 0].mean()
    )
    estimate = t_interval(list(values.values()))
    return above(estimate, UNIFORM[0], estimate.text(".3f"))


def _against_gmc(
    evidence: Evidence, dataset: str, method: str, measure: Callable[[RunData], float], decide: Decide, form: str
) -> Judgement:
    """How does a measure of a signal's runs compare with GMC's, seed by seed?"""
    ours = evidence.values(dataset, "curriculum", method, measure)
    estimate = ratio(*paired(ours, evidence.values(dataset, "curriculum", "gmc", measure)))
    return decide(estimate, 1.0, estimate.text(form))


def _slower(evidence: Evidence, dataset: str) -> Judgement:
    gmc = evidence.areas(dataset, "curriculum", "gmc")
    estimate = relative_area(evidence.areas(dataset, "curriculum", "dot"), gmc)
    return above(estimate, 1.0, estimate.text(".4f"))


def _share_of(evidence: Evidence, dataset: str, method: str, group: int, decide: Decide, limit: float) -> Judgement:
    estimate = t_interval(_last_shares(evidence, dataset, method)[:, group])
    return decide(estimate, limit, estimate.text(".3f"))


def _near(evidence: Evidence, dataset: str) -> Judgement:
    shares = _last_shares(evidence, dataset, "gmc")
    estimate = t_interval(abs(shares - QUARTER).max(1))
    mean = "/".join(f"{100 * share:.0f}" for share in shares.mean(0))
    return below(estimate, NEAR, f"{mean} % of {'/'.join(GROUP_NAMES['noise'])}; off by {estimate.text('.3f')}")


def _last_shares(evidence: Evidence, dataset: str, method: str) -> Array:
    """Shares of the groups at the end of each run [runs, 4]."""
    return np.array([tail(group_shares(run)).mean(0) for run in evidence.runs(dataset, "noise", method)])
