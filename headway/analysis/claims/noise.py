"""Claims about the noise condition: where signals draw from when labels are random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from headway.analysis.claims.evidence import Evidence
from headway.analysis.claims.registry import register
from headway.analysis.claims.verdicts import Finding, Judgement, above, below, find
from headway.analysis.columns import Array
from headway.analysis.stats import Estimate, t_interval
from headway.analysis.summaries import group_shares, tail
from headway.study.protocols.names import GROUP_NAMES, title

UNIFORM = 0.25
NEAR = 0.1
"""Shares are near uniform when none of them is off 1/4 by this much."""


@register(
    "C5",
    "noise, both datasets: Curiosity over-allocates to the noisiest group",
    "share of draws of group D in the last 10% of epochs",
)
def curiosity_follows_noise(evidence: Evidence) -> Iterator[Finding]:
    """Judge C5."""
    for dataset, counts in evidence.datasets("noise"):
        judge = partial(_share_of, evidence, dataset, "curiosity", 3, above, UNIFORM + NEAR)
        paper = f"far above 1/4 (here: > {UNIFORM + NEAR})"
        yield find(f"{title(dataset)}: Curiosity's share of D", paper, judge, counts)


@register(
    "C6",
    "noise: GMC's allocation is near uniform, slightly against the clean group A",
    "shares of A to D, last 10% of epochs, distance to 1/4",
)
def gmc_ignores_noise(evidence: Evidence) -> Iterator[Finding]:
    """Judge C6."""
    for dataset, counts in evidence.datasets("noise"):
        near = partial(_near, evidence, dataset)
        against = partial(_share_of, evidence, dataset, "gmc", 0, below, UNIFORM)
        yield find(f"{title(dataset)}: greatest distance of a share to 1/4", f"small (here: < {NEAR})", near, counts)
        yield find(f"{title(dataset)}: share of the clean group A", "slightly below 1/4", against, counts)


def _share_of(
    evidence: Evidence,
    dataset: str,
    method: str,
    group: int,
    decide: Callable[[Estimate, float, str], Judgement],
    limit: float,
) -> Judgement:
    estimate = t_interval(_last_shares(evidence, dataset, method)[:, group])
    return decide(estimate, limit, estimate.text(".3f"))


def _near(evidence: Evidence, dataset: str) -> Judgement:
    shares = _last_shares(evidence, dataset, "gmc")
    estimate = t_interval(abs(shares - UNIFORM).max(1))
    mean = "/".join(f"{100 * share:.0f}" for share in shares.mean(0))
    return below(estimate, NEAR, f"{mean} % of {'/'.join(GROUP_NAMES['noise'])}; off by {estimate.text('.3f')}")


def _last_shares(evidence: Evidence, dataset: str, method: str) -> Array:
    """Shares of the groups at the end of each run [runs, 4]."""
    return np.array([tail(group_shares(run)).mean(0) for run in evidence.runs(dataset, "noise", method)])
