"""The list of claims, and their evaluation on runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headway.analysis.claims.evidence import Evidence
from headway.analysis.claims.verdicts import Finding, Verdict, combine
from headway.analysis.results import Results

Judge: TypeAlias = Callable[[Evidence], Iterable[Finding]]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        id: its short name, such as "C5".
        text: what is claimed.
        decided_by: the quantity that decides.
        judge: gives a finding for each part of it.
        is_of_exploration: whether exploration runs decide it.
    """

    id: str
    text: str
    decided_by: str
    judge: Judge
    is_of_exploration: bool = False


@dataclass(frozen=True)
class ClaimResult:
    """A claim with what the runs say about it.

    Attributes:
        claim: the claim.
        protocol: the label of the protocol of the runs.
        findings: its parts.
    """

    claim: Claim
    protocol: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole claim."""
        return combine(self.findings)

    @property
    def needed(self) -> int | None:
        """How many seeds would decide what is undecided of it, by the spread at hand; None if that is not known."""
        open_parts = [f.judgement for f in self.findings if f.counts and f.verdict is Verdict.UNDECIDED]
        known = [part.needed for part in open_parts if part.needed is not None]
        return max(known) if known and len(known) == len(open_parts) else None


CLAIMS: dict[str, Claim] = {}


def register(claim_id: str, text: str, decided_by: str, is_of_exploration: bool = False) -> Callable[[Judge], Judge]:
    """Add a claim.

    Raises:
        ValueError: the id is taken.
    """
    if claim_id in CLAIMS:
        raise ValueError(f"expected a new id for a claim, got {claim_id!r} twice")

    def add(judge: Judge) -> Judge:
        CLAIMS[claim_id] = Claim(claim_id, text, decided_by, judge, is_of_exploration)
        return judge

    return add


def evaluate_claims(
    results: Results,
    protocol: str = "released",
    bench: Mapping[str, Any] | None = None,
    seed: int = 0,
    only: Collection[str] | None = None,
) -> list[ClaimResult]:
    """Judge every claim by the finished runs of one protocol.

    Parts that do not count (datasets that are not in the paper) are left out where there are no runs for them.

    Args:
        results: the runs.
        protocol: the label of the protocol.
        bench: a benchmark's results as parsed JSON, for the claim about time.
        seed: where the bootstrap's randomness starts.
        only: the ids of the claims to judge; None for all.

    Raises:
        KeyError: there is no claim of such an id.
    """
    evidence = Evidence(results, protocol, bench, seed)
    asked = CLAIMS if only is None else only
    claims = sorted((CLAIMS[claim_id] for claim_id in asked), key=lambda claim: int(claim.id.removeprefix("C")))
    return [
        ClaimResult(
            claim,
            evidence.exploring if claim.is_of_exploration else protocol,
            tuple(filter(_is_worth_showing, claim.judge(evidence))),
        )
        for claim in claims
    ]


def _is_worth_showing(finding: Finding) -> bool:
    return finding.counts or bool(finding.judgement.ours)
