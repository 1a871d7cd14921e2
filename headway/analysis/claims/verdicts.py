"""Verdicts, what they are given for, and the rules by which an interval decides."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.analysis.stats import Estimate
from headway.analysis.stats.intervals import CONFIDENCE, scipy_stats

MIN_SEEDS = 3
"""Fewer seeds decide nothing."""
MOST_SEEDS = 1000
"""Where more seeds than this were needed, that is all that is said."""


class Verdict(str, enum.Enum):
    """What the runs say about a claim."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"
    """There are runs, but not enough of them."""
    NOT_TESTED = "not tested"
    """There are no runs."""

    def __str__(self) -> str:
        """Return the plain word."""
        return self.value


class TooLittleDataError(Exception):
    """There are not enough runs for a part of a claim; the message says what is missing."""


class NoRunsError(TooLittleDataError):
    """There are no runs at all for a part of a claim."""


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
        needed: where it is undecided, how many seeds would decide it if value and spread stay what they are; None if
            that is not known.
    """

    verdict: Verdict
    ours: str
    n: int
    why: str = ""
    estimate: Estimate | None = None
    needed: int | None = None


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
    """Judge a part of a claim; too little data makes it undecided, and no runs at all leave it untested."""
    try:
        return Finding(part, paper, judge(), counts)
    except NoRunsError as error:
        return Finding(part, paper, Judgement(Verdict.NOT_TESTED, "", 0, str(error)), counts)
    except TooLittleDataError as error:
        return Finding(part, paper, Judgement(Verdict.UNDECIDED, "", 0, str(error)), counts)


def combine(findings: Sequence[Finding]) -> Verdict:
    """The verdict on a claim, by its parts that count.

    Contradicted if one of them is, reproduced or not tested if all are, and undecided otherwise.
    """
    verdicts = [finding.verdict for finding in findings if finding.counts]
    if Verdict.CONTRADICTED in verdicts:
        return Verdict.CONTRADICTED
    for verdict in (Verdict.REPRODUCED, Verdict.NOT_TESTED):
        if verdicts and all(each is verdict for each in verdicts):
            return verdict
    return Verdict.UNDECIDED


def seeds_needed(estimate: Estimate, *limits: float, confidence: float = CONFIDENCE) -> int | None:
    """How many seeds would take the interval off all limits, if value and spread stay what they are.

    The interval's half width is t(n - 1) s / sqrt(n); s follows from the interval at hand.
    """
    if not estimate.is_bounded or estimate.n < 2:
        return None
    distance = min(abs(estimate.value - limit) for limit in limits)
    spread = (estimate.high - estimate.low) / 2 * math.sqrt(estimate.n) / _quantile(confidence, estimate.n)
    numbers = np.arange(MIN_SEEDS, MOST_SEEDS)
    enough = _quantile(confidence, numbers) * spread / np.sqrt(numbers) < distance
    return int(numbers[enough.argmax()]) if enough.any() else MOST_SEEDS


def _quantile(confidence: float, n: Any) -> Any:
    return scipy_stats().t.ppf((1 + confidence) / 2, n - 1)


def above(estimate: Estimate, limit: float, ours: str) -> Judgement:
    """Is it above the limit? Decided when the interval lies on one side of it."""
    holds, fails = estimate.is_above(limit), estimate.is_below(limit)
    return _judgement(estimate, holds, fails, ours, f"the interval covers {limit:.3g}", limit)


def below(estimate: Estimate, limit: float, ours: str) -> Judgement:
    """Is it below the limit? Decided when the interval lies on one side of it."""
    holds, fails = estimate.is_below(limit), estimate.is_above(limit)
    return _judgement(estimate, holds, fails, ours, f"the interval covers {limit:.3g}", limit)


def within(estimate: Estimate, low: float, high: float, ours: str) -> Judgement:
    """Is it between the limits? Decided when the whole interval is, or none of it is."""
    holds = estimate.is_above(low) and estimate.is_below(high)
    fails = estimate.is_below(low) or estimate.is_above(high)
    return _judgement(
        estimate, holds, fails, ours, f"the interval reaches over an end of {low:.3g} to {high:.3g}", low, high
    )


def all_positive(
    make: Callable[[float], Sequence[Estimate]], links: Sequence[str], ours: str, least: int = MIN_SEEDS
) -> Judgement:
    """Are several differences all positive, such as the steps of an order?

    All 95% intervals must be above zero (that all hold by chance is at most as likely as that one does). It is
    contradicted when an interval is below zero, and there, where one of k is enough, each is at 1 - 0.05 / k.
    """
    estimates = make(0.95)
    n = min(estimate.n for estimate in estimates)
    strict = make(1 - 0.05 / len(estimates))
    against = [link for link, estimate in zip(links, strict, strict=True) if estimate.is_below(0)]
    needed = _needed_for_all(estimates, strict, least)
    if n < least:
        return _too_few(n, ours, least=least, needed=needed)
    if all(estimate.is_above(0) for estimate in estimates):
        return Judgement(Verdict.REPRODUCED, ours, n)
    if against:
        return Judgement(Verdict.CONTRADICTED, ours, n, f"not so: {', '.join(against)}")
    unclear = [link for link, estimate in zip(links, estimates, strict=True) if not estimate.is_above(0)]
    why = f"the interval covers both answers for {', '.join(unclear)}"
    return Judgement(Verdict.UNDECIDED, ours, n, why, needed=needed)


def _needed_for_all(estimates: Sequence[Estimate], strict: Sequence[Estimate], least: int) -> int | None:
    """The seeds for all differences to be positive; where some are negative now, for one of them to be so clearly."""
    if all(estimate.value > 0 for estimate in estimates):
        found = [seeds_needed(estimate, 0.0) for estimate in estimates]
        return None if None in found else max(least, *(n for n in found if n is not None))
    confidence = 1 - 0.05 / len(estimates)
    found = [seeds_needed(estimate, 0.0, confidence=confidence) for estimate in strict if estimate.value < 0]
    known = [n for n in found if n is not None]
    return max(least, min(known)) if known else None


def _judgement(estimate: Estimate, holds: bool, fails: bool, ours: str, unclear: str, *limits: float) -> Judgement:
    needed = seeds_needed(estimate, *limits)
    if estimate.n < MIN_SEEDS:
        return _too_few(estimate.n, ours, estimate, needed=needed)
    if not estimate.is_bounded:
        return Judgement(Verdict.UNDECIDED, ours, estimate.n, "there is no finite interval", estimate)
    if holds or fails:
        return Judgement(Verdict.REPRODUCED if holds else Verdict.CONTRADICTED, ours, estimate.n, "", estimate)
    return Judgement(Verdict.UNDECIDED, ours, estimate.n, unclear, estimate, needed)


def _too_few(
    n: int, ours: str, estimate: Estimate | None = None, least: int = MIN_SEEDS, needed: int | None = None
) -> Judgement:
    why = f"{n} {'seed' if n == 1 else 'seeds'}, at least {least} are needed"
    return Judgement(Verdict.UNDECIDED, ours, n, why, estimate, needed)
