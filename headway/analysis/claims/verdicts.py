"""Verdicts: the rules by which an interval decides, and verdicts on claims as text, Markdown and JSON values."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis.stats import CONFIDENCE, Estimate, scipy_stats
from headway.analysis.table import Cell, Table
from headway.runs.text import count

if TYPE_CHECKING:
    from headway.analysis.claims.evaluation import ClaimResult

MIN_SEEDS = 3  #: Fewer seeds decide nothing
MOST_SEEDS = 1000  #: Where more seeds than this were needed, that is all that is said


class Verdict(str, enum.Enum):
    """What the runs say about a claim."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"  #: There are runs, but not enough of them
    NOT_TESTED = "not tested"  #: There are no runs

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
    """What was found for one part of a claim."""

    verdict: Verdict  #: what it says
    ours: str  #: our figure, in words
    n: int  #: the seeds that it rests on; the smallest number where several methods are compared
    why: str = ""  #: why it is undecided; empty otherwise
    estimate: Estimate | None = None  #: the number that decided, if it was one
    #: where it is undecided, how many seeds would decide it if value and spread stay what they are; None if that is not
    #: known
    needed: int | None = None


@dataclass(frozen=True)
class Finding:
    """One part of a claim with its verdict."""

    part: str  #: what is asked, such as "MNIST: Curiosity's share of D is above 1/4"
    paper: str  #: what the paper found
    judgement: Judgement  #: what was found here
    #: whether it takes part in the verdict on the claim. Parts that the paper itself leaves open, and datasets that are
    #: not in the paper, are shown without counting.
    counts: bool = True

    @property
    def verdict(self) -> Verdict:
        """What it says."""
        return self.judgement.verdict


def find(part: str, paper: str, judge: Callable[..., Judgement], *of: Any, counts: bool = True) -> Finding:
    """Judge a part of a claim; too little data makes it undecided, and no runs at all leave it untested."""
    try:
        return Finding(part, paper, judge(*of), counts)
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
    return _judgement(estimate, limit, math.inf, ours, f"the interval covers {limit:.3g}")


def below(estimate: Estimate, limit: float, ours: str) -> Judgement:
    """Is it below the limit? Decided when the interval lies on one side of it."""
    return _judgement(estimate, -math.inf, limit, ours, f"the interval covers {limit:.3g}")


def within(estimate: Estimate, low: float, high: float, ours: str) -> Judgement:
    """Is it between the limits? Decided when the whole interval is, or none of it is."""
    return _judgement(estimate, low, high, ours, f"the interval reaches over an end of {low:.3g} to {high:.3g}")


def _judgement(estimate: Estimate, low: float, high: float, ours: str, unclear: str) -> Judgement:
    needed = seeds_needed(estimate, low, high)
    if estimate.n < MIN_SEEDS:
        return Judgement(Verdict.UNDECIDED, ours, estimate.n, too_few(estimate.n), estimate, needed)
    if not estimate.is_bounded:
        return Judgement(Verdict.UNDECIDED, ours, estimate.n, "there is no finite interval", estimate)
    if estimate.is_above(low) and estimate.is_below(high):
        return Judgement(Verdict.REPRODUCED, ours, estimate.n, "", estimate)
    if estimate.is_below(low) or estimate.is_above(high):
        return Judgement(Verdict.CONTRADICTED, ours, estimate.n, "", estimate)
    return Judgement(Verdict.UNDECIDED, ours, estimate.n, unclear, estimate, needed)


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
        return Judgement(Verdict.UNDECIDED, ours, n, too_few(n, least), needed=needed)
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


def too_few(n: int, least: int = MIN_SEEDS) -> str:
    """Why so few seeds decide nothing."""
    return f"{count(n, 'seed')}, at least {least} are needed"


SCHEMA = 1
NOT_COUNTED = "does not count"
NOT_COUNTED_MEANS = f'Parts marked "{NOT_COUNTED}" are there to compare with; they do not decide the verdict.'
CLAIM_HEADS = ("claim", "verdict", "what is claimed", "decided by", "remark")
PART_HEADS = ("claim", "part", "verdict", "ours", "paper", "seeds", "remark")
SHOWN_REASONS = 3  #: Reasons for which parts have no figure that one line names


def as_text(results: Sequence[ClaimResult], verbose: bool = True) -> str:
    """The claims for a terminal: a line each, with a line for each part below it unless it is not wanted."""
    lines = [f"Protocol: {_protocol(results)}"] if results else []
    untested = [result.claim.id for result in results if result.verdict is Verdict.NOT_TESTED]
    for result in results:
        if result.claim.id in untested and len(untested) > 1:
            continue
        lines.append(f"{result.claim.id:4}{result.verdict.value:14}{result.claim.text}{_besides(result, results)}")
        if verbose:
            lines += [f"        {line}" for line in _lines(result.findings)]
    if len(untested) > 1:
        lines.append(f"{Verdict.NOT_TESTED.value}, for want of runs: {', '.join(untested)}")
    if verbose and _has_uncounted(results):
        lines.append(NOT_COUNTED_MEANS)
    lines.append(summary(results))
    return "\n".join(lines)


def _has_uncounted(results: Sequence[ClaimResult]) -> bool:
    return any(not finding.counts for result in results for finding in result.findings)


def _lines(findings: Sequence[Finding]) -> list[str]:
    """A line for each part; those for which there are no runs share one."""
    without = [finding for finding in findings if not finding.judgement.ours]
    lines = [_line(finding) for finding in findings if finding.judgement.ours]
    if without:
        reasons = list(dict.fromkeys(finding.judgement.why for finding in without))
        more = f"; and {len(reasons) - SHOWN_REASONS} more" if len(reasons) > SHOWN_REASONS else ""
        parts = f"{len(without)} parts: " if len(without) > 1 else f"{without[0].part}: "
        verdicts = {finding.verdict for finding in without}
        verdict = Verdict.NOT_TESTED if verdicts == {Verdict.NOT_TESTED} else Verdict.UNDECIDED
        lines.append(f"{verdict.value:14}{parts}{'; '.join(reasons[:SHOWN_REASONS])}{more}")
    return lines


def summary(results: Sequence[ClaimResult]) -> str:
    """How many claims got which verdict, such as "17 claims: 3 reproduced, 1 contradicted, 13 undecided"."""
    found = Counter(result.verdict for result in results)
    counts = ", ".join(f"{found[verdict]} {verdict}" for verdict in Verdict)
    protocol = f" under protocol {_protocol(results)}" if results else ""
    return f"{len(results)} claims{protocol}: {counts}"


def _protocol(results: Sequence[ClaimResult]) -> str:
    """The protocol by which most of the claims are judged."""
    return Counter(result.protocol for result in results).most_common(1)[0][0]


def _besides(result: ClaimResult, results: Sequence[ClaimResult]) -> str:
    """What is to be said of a claim besides its verdict: another protocol than the others', and what it would take."""
    notes = [f"protocol {result.protocol}"] if result.protocol != _protocol(results) else []
    notes += [what] if (what := what_it_takes(result)) else []
    return f" ({'; '.join(notes)})" if notes else ""


def what_it_takes(result: ClaimResult) -> str:
    """How many seeds would decide an undecided claim, in words; empty for others, and where it is not known."""
    if result.verdict is not Verdict.UNDECIDED or result.needed is None:
        return ""
    return f"would take {_seeds(result.needed)}"


def _seeds(needed: int) -> str:
    return f"more than {MOST_SEEDS} seeds" if needed >= MOST_SEEDS else f"about {needed} seeds"


def _remark(finding: Finding) -> str:
    """Why a part is undecided, what it would take, and whether it counts."""
    found = finding.judgement
    open_part = finding.verdict is Verdict.UNDECIDED and found.needed is not None and found.needed > found.n
    takes = f"would take {_seeds(found.needed)}" if open_part and found.needed is not None else ""
    return "; ".join(filter(None, (found.why, takes, "" if finding.counts else NOT_COUNTED)))


def as_markdown(results: Sequence[ClaimResult], only_found: bool = False) -> str:
    """The claims as two Markdown tables: one of the claims, and one of their parts."""
    said = [result for result in results if _is_said(result, only_found)]
    silent = [result.claim.id for result in results if result not in said]
    findings = [(result.claim.id, finding) for result in results for finding in result.findings]
    parts = [(claim_id, finding) for claim_id, finding in findings if finding.judgement.ours or not only_found]
    lacking = len(findings) - len(parts)
    rows = []
    for result in said:
        claim, remark = result.claim, _besides(result, results).strip(" ()")
        rows.append((claim.id, f"**{result.verdict}**", claim.text, claim.decided_by, remark))
    texts = [
        summary(results),
        Table(CLAIM_HEADS, rows).markdown(),
        f"Not tested, for want of runs: {', '.join(silent)}." if silent else "",
        Table(PART_HEADS, [_part_row(*part) for part in parts]).markdown(),
        f"For {lacking} other parts there are no runs, or too few for a figure." if lacking else "",
        NOT_COUNTED_MEANS if _has_uncounted(results) else "",
    ]
    return "\n\n".join(filter(None, texts)) + "\n"


def parts_table(judged: Sequence[Sequence[ClaimResult]]) -> Table:
    """The parts of the claims of several protocols, a row for each."""
    rows = [
        (result.protocol, *_part_row(result.claim.id, finding))
        for results in judged
        for result in results
        for finding in result.findings
    ]
    return Table(("protocol", *PART_HEADS), rows)


def _part_row(claim_id: str, finding: Finding) -> tuple[Cell, ...]:
    found = finding.judgement
    return claim_id, finding.part, finding.verdict.value, found.ours, finding.paper, found.n or "", _remark(finding)


def _is_said(result: ClaimResult, only_found: bool) -> bool:
    """Whether there is more to say of a claim than that there are no runs."""
    if result.verdict is Verdict.NOT_TESTED:
        return False
    return not only_found or any(finding.judgement.ours for finding in result.findings)


def as_dict(results: Sequence[ClaimResult]) -> dict[str, Any]:
    """The claims of one protocol as plain JSON values."""
    claims = [
        {
            "id": result.claim.id,
            "claim": result.claim.text,
            "decided_by": result.claim.decided_by,
            "verdict": result.verdict.value,
            "protocol": result.protocol,
            "seeds_needed": result.needed,
            "parts": [_part(finding) for finding in result.findings],
        }
        for result in results
    ]
    return {"protocol": _protocol(results) if results else "", "claims": claims}


def _part(finding: Finding) -> dict[str, Any]:
    found, estimate = finding.judgement, None
    if found.estimate:
        ends = {name: getattr(found.estimate, name) for name in ("value", "low", "high")}
        estimate = {name: end if math.isfinite(end) else None for name, end in ends.items()} | {"n": found.estimate.n}
    return {
        "part": finding.part,
        "counts": finding.counts,
        "verdict": finding.verdict.value,
        "ours": found.ours,
        "estimate": estimate,
        "paper": finding.paper,
        "seeds": found.n,
        "seeds_needed": found.needed,
        "why": found.why,
    }


def _line(finding: Finding) -> str:
    found = finding.judgement
    parts = [f"{finding.verdict.value:14}{finding.part}: {found.ours}; paper: {finding.paper}"]
    parts += [f"n = {found.n}"] if found.n else []
    return "; ".join([*parts, *filter(None, [_remark(finding)])])
