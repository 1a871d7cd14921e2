"""Verdicts, what they are given for, and the rules by which an interval decides."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.analysis.stats import Estimate

MIN_SEEDS = 3
"""Fewer seeds decide nothing."""


class Verdict(str, enum.Enum):
    """What the runs say about a claim."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"

    def __str__(self) -> str:
        """Return the plain word."""
        return self.value


class TooLittleDataError(Exception):
    """There are not enough runs for a part of a claim; the message says what is missing."""


class DivergedError(TooLittleDataError):
    """A run has diverged, so that a part of a claim cannot be judged."""


@dataclass(frozen=True)
class Judgement:
    """What was found for one part of a claim.

    Attributes:
        verdict: what it says.
        ours: our figure, in words.
        n: the seeds that it rests on; the smallest number where several methods are compared.
        why: why it is undecided; empty otherwise.
        estimate: the number that decided, if it was one.
    """

    verdict: Verdict
    ours: str
    n: int
    why: str = ""
    estimate: Estimate | None = None


@dataclass(frozen=True)
class Finding:
    """One part of a claim with its verdict.

    Attributes:
        part: what is asked, such as "MNIST: Curiosity's share of D is above 1/4".
        paper: what the paper found.
        judgement: what was found here.
        counts: whether it takes part in the verdict on the claim. Parts that the paper itself leaves open, and
            datasets that are not in the paper, are shown without counting.
    """

    part: str
    paper: str
    judgement: Judgement
    counts: bool = True

    @property
    def verdict(self) -> Verdict:
        """What it says."""
        return self.judgement.verdict


def find(part: str, paper: str, judge: Callable[[], Judgement], counts: bool = True) -> Finding:
    """Judge a part of a claim; too little data makes it undecided."""
    try:
        return Finding(part, paper, judge(), counts)
    except TooLittleDataError as error:
        return Finding(part, paper, Judgement(Verdict.UNDECIDED, "", 0, str(error)), counts)


def combine(findings: Sequence[Finding]) -> Verdict:
    """The verdict on a claim: contradicted if a part is, reproduced if all are; only parts that count do."""
    verdicts = [finding.verdict for finding in findings if finding.counts]
    if Verdict.CONTRADICTED in verdicts:
        return Verdict.CONTRADICTED
    if verdicts and all(verdict is Verdict.REPRODUCED for verdict in verdicts):
        return Verdict.REPRODUCED
    return Verdict.UNDECIDED


def above(estimate: Estimate, limit: float, ours: str) -> Judgement:
    """Is it above the limit? Decided when the interval lies on one side of it."""
    holds, fails = estimate.is_above(limit), estimate.is_below(limit)
    return _judgement(estimate, holds, fails, ours, f"the interval covers {limit:.3g}")


def below(estimate: Estimate, limit: float, ours: str) -> Judgement:
    """Is it below the limit? Decided when the interval lies on one side of it."""
    holds, fails = estimate.is_below(limit), estimate.is_above(limit)
    return _judgement(estimate, holds, fails, ours, f"the interval covers {limit:.3g}")


def within(estimate: Estimate, low: float, high: float, ours: str) -> Judgement:
    """Is it between the limits? Decided when the whole interval is, or none of it is."""
    holds = estimate.is_above(low) and estimate.is_below(high)
    fails = estimate.is_below(low) or estimate.is_above(high)
    return _judgement(estimate, holds, fails, ours, f"the interval reaches over an end of {low:.3g} to {high:.3g}")


def all_positive(
    make: Callable[[float], Sequence[Estimate]], links: Sequence[str], ours: str, least: int = MIN_SEEDS
) -> Judgement:
    """Are several differences all positive, such as the steps of an order?

    All 95% intervals must be above zero (that all hold by chance is at most as likely as that one does). It is
    contradicted when an interval is below zero, and there, where one of k is enough, each is at 1 - 0.05 / k.

    Args:
        make: gives the differences with intervals of some confidence.
        links: what each of them compares, such as "G0 < G1".
        ours: our figure, in words.
        least: fewer seeds decide nothing.
    """
    estimates = make(0.95)
    n = min(estimate.n for estimate in estimates)
    if n < least:
        return _too_few(n, ours, least=least)
    if all(estimate.is_above(0) for estimate in estimates):
        return Judgement(Verdict.REPRODUCED, ours, n)
    strict = make(1 - 0.05 / len(estimates))
    against = [link for link, estimate in zip(links, strict, strict=True) if estimate.is_below(0)]
    if against:
        return Judgement(Verdict.CONTRADICTED, ours, n, f"not so: {', '.join(against)}")
    unclear = [link for link, estimate in zip(links, estimates, strict=True) if not estimate.is_above(0)]
    return Judgement(Verdict.UNDECIDED, ours, n, f"the interval covers both answers for {', '.join(unclear)}")


def _judgement(estimate: Estimate, holds: bool, fails: bool, ours: str, unclear: str) -> Judgement:
    if estimate.n < MIN_SEEDS:
        return _too_few(estimate.n, ours, estimate)
    if not estimate.is_bounded:
        return Judgement(Verdict.UNDECIDED, ours, estimate.n, "there is no finite interval", estimate)
    if holds or fails:
        return Judgement(Verdict.REPRODUCED if holds else Verdict.CONTRADICTED, ours, estimate.n, "", estimate)
    return Judgement(Verdict.UNDECIDED, ours, estimate.n, unclear, estimate)


def _too_few(n: int, ours: str, estimate: Estimate | None = None, least: int = MIN_SEEDS) -> Judgement:
    why = f"{n} {'seed' if n == 1 else 'seeds'}, at least {least} are needed"
    return Judgement(Verdict.UNDECIDED, ours, n, why, estimate)
