from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.analysis.claims.cases import judge, many

BOTH = ("mnist", "cifar10")


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ((0.01, 0.01, 0.03, 0.95), "reproduced"),
        ((0.3, 0.3, 0.3, 0.1), "contradicted"),
        ((0.25, 0.25, 0.25, 0.25), "contradicted"),  # even draws are not drawn to the noise
        ((0.23, 0.23, 0.24, 0.3), "contradicted"),  # nor is what C6 calls near uniform
        ((0.215, 0.215, 0.22, 0.35), "undecided"),
    ],
)
def test_c5(shares: Sequence[float], verdict: str) -> None:
    runs = [run for dataset in BOTH for run in many(dataset, "noise", "curiosity", 4, shares=shares)]
    assert judge("C5", runs).verdict == verdict


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ((0.2, 0.25, 0.27, 0.28), "reproduced"),
        ((0.02, 0.23, 0.32, 0.43), "contradicted"),  # far from uniform
        ((0.31, 0.23, 0.23, 0.23), "contradicted"),  # in favour of the clean group
        ((0.25, 0.25, 0.25, 0.25), "undecided"),
    ],
)
def test_c6(shares: Sequence[float], verdict: str) -> None:
    runs = [run for dataset in BOTH for run in many(dataset, "noise", "gmc", 4, shares=shares)]
    assert judge("C6", runs).verdict == verdict


def test_c6_shows_the_shares() -> None:
    finding = judge("C6", many("mnist", "noise", "gmc", 4, shares=(0.2, 0.25, 0.27, 0.28))).findings[0]
    assert finding.judgement.ours.startswith("20/25/27/28 % of A/B/C/D; off by 0.05")


def test_two_seeds_are_too_few() -> None:
    runs = [run for dataset in BOTH for run in many(dataset, "noise", "curiosity", 2, shares=(0, 0, 0, 1))]
    result = judge("C5", runs)
    assert result.verdict == "undecided"
    assert result.findings[0].judgement.why == "2 seeds, at least 3 are needed"
    assert result.findings[0].judgement.ours
