"""Claims about the variants of GMC."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from headway.analysis.claims.evidence import Evidence, paired
from headway.analysis.claims.registry import register
from headway.analysis.claims.verdicts import Finding, Judgement, above, below, find
from headway.analysis.stats import ratio, t_interval
from headway.analysis.summaries import distance_to_uniform, group_shares, head, share_fluctuation
from headway.analysis.tables import relative_area
from headway.study.protocols.names import GROUPS, title

UNIFORM = np.array([len(group) for group in GROUPS]) / sum(map(len, GROUPS))
CONDITION = "curriculum"


@register(
    "C12",
    "ablation, CIFAR-10: Cosine oversamples the easiest group early and its allocation fluctuates",
    "share of G0 in the first 10% of epochs; epoch-to-epoch variance of the shares, relative to GMC's",
)
def cosine(evidence: Evidence) -> Iterator[Finding]:
    """Judge C12."""
    for dataset, counts in evidence.datasets(CONDITION, ("cifar10",)):
        early, fluctuates = partial(_early_share, evidence, dataset), partial(_fluctuation, evidence, dataset)
        yield find(f"{title(dataset)}: Cosine's early share of G0", f"above {UNIFORM[0]:.1f}", early, counts)
        yield find(f"{title(dataset)}: fluctuation of Cosine / GMC", "above 1", fluctuates, counts)


@register(
    "C13",
    "ablation, CIFAR-10: Dot Product's allocation is closer to uniform than GMC's, with a slightly slower loss",
    "distance to uniform (half the sum of the shares' distances, averaged over epochs); AUC relative to GMC's",
)
def dot_product(evidence: Evidence) -> Iterator[Finding]:
    """Judge C13."""
    for dataset, counts in evidence.datasets(CONDITION, ("cifar10",)):
        closer, slower = partial(_distance, evidence, dataset), partial(_slower, evidence, dataset)
        yield find(f"{title(dataset)}: distance to uniform, Dot Product / GMC", "below 1", closer, counts)
        yield find(f"{title(dataset)}: AUC, Dot Product / GMC", "slightly above 1", slower, counts)


def _early_share(evidence: Evidence, dataset: str) -> Judgement:
    values = evidence.values(dataset, CONDITION, "cosine", lambda run: head(group_shares(run))[:, 0].mean())
    estimate = t_interval(list(values.values()))
    return above(estimate, float(UNIFORM[0]), estimate.text(".3f"))


def _fluctuation(evidence: Evidence, dataset: str) -> Judgement:
    ours = evidence.values(dataset, CONDITION, "cosine", share_fluctuation)
    estimate = ratio(*paired(ours, evidence.values(dataset, CONDITION, "gmc", share_fluctuation)))
    return above(estimate, 1.0, estimate.text(".3g"))


def _distance(evidence: Evidence, dataset: str) -> Judgement:
    ours = evidence.values(dataset, CONDITION, "dot", distance_to_uniform)
    estimate = ratio(*paired(ours, evidence.values(dataset, CONDITION, "gmc", distance_to_uniform)))
    return below(estimate, 1.0, estimate.text(".3f"))


def _slower(evidence: Evidence, dataset: str) -> Judgement:
    gmc = evidence.areas(dataset, CONDITION, "gmc")
    estimate = relative_area(evidence.areas(dataset, CONDITION, "dot"), gmc)
    return above(estimate, 1.0, estimate.text(".4f"))
