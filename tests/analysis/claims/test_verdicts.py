from __future__ import annotations

import math

import pytest

from headway.analysis.claims.verdicts import (
    Finding,
    Judgement,
    TooLittleDataError,
    Verdict,
    above,
    all_positive,
    below,
    combine,
    find,
    within,
)
from headway.analysis.stats import Estimate

R, C, U = Verdict.REPRODUCED, Verdict.CONTRADICTED, Verdict.UNDECIDED


def estimate(low: float, high: float, n: int = 5) -> Estimate:
    return Estimate((low + high) / 2, low, high, n)


@pytest.mark.parametrize(
    ("low", "high", "is_above", "is_below", "is_within"),
    [
        (1.1, 1.3, R, C, R),
        (0.7, 0.9, C, R, R),
        (0.9, 1.1, U, U, R),
        (1.0, 1.2, U, U, R),
        (1.4, 1.7, R, C, U),
        (1.6, 1.7, R, C, C),
        (0.1, 0.2, C, R, C),
        (-math.inf, math.inf, U, U, U),
    ],
)
def test_an_interval_decides(low: float, high: float, is_above: Verdict, is_below: Verdict, is_within: Verdict) -> None:
    assert above(estimate(low, high), 1.0, "").verdict is is_above
    assert below(estimate(low, high), 1.0, "").verdict is is_below
    assert within(estimate(low, high), 0.5, 1.5, "").verdict is is_within


def test_an_undecided_one_says_why() -> None:
    assert above(estimate(0.9, 1.1), 1.0, "x").why == "the interval covers 1"
    assert above(estimate(0.9, 1.1, n=1), 1.0, "x").why == "1 seed, at least 3 are needed"
    assert above(estimate(1.2, 1.3, n=2), 1.0, "x").why == "2 seeds, at least 3 are needed"
    assert above(estimate(-math.inf, math.inf), 1.0, "x").why == "there is no finite interval"
    assert above(estimate(1.1, 1.2), 1.0, "x").why == ""


def test_too_few_seeds_decide_nothing() -> None:
    for decide in (above, below):
        assert decide(estimate(2, 3, n=2), 1.0, "").verdict is U
    assert within(estimate(2, 3, n=2), 0, 9, "").verdict is U
    assert all_positive(lambda confidence: [estimate(1, 2, n=2)], ["a"], "").verdict is U


def test_an_order_holds_when_every_step_does() -> None:
    assert all_positive(lambda _: [estimate(1, 2), estimate(3, 4)], ["a", "b"], "x").verdict is R
    unclear = all_positive(lambda _: [estimate(1, 2), estimate(-1, 4)], ["a", "b"], "x")
    assert (unclear.verdict, unclear.why) == (U, "the interval covers both answers for b")
    against = all_positive(lambda _: [estimate(1, 2), estimate(-4, -1)], ["a", "b"], "x")
    assert (against.verdict, against.why) == (C, "not so: b")


def test_that_one_of_many_steps_fails_needs_a_wider_interval() -> None:
    asked: list[float] = []

    def make(confidence: float) -> list[Estimate]:
        asked.append(confidence)
        return [estimate(-4, -1) if confidence <= 0.95 else estimate(-5, 1)] * 4

    assert all_positive(make, list("abcd"), "x").verdict is U
    assert asked == [0.95, pytest.approx(1 - 0.05 / 4)]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [([R, R], R), ([R, U], U), ([R, C], C), ([U, C], C), ([U], U), ([], U)],
)
def test_the_verdict_on_a_claim(verdicts: list[Verdict], expected: Verdict) -> None:
    findings = [Finding("", "", Judgement(verdict, "", 3)) for verdict in verdicts]
    beside = [Finding("", "", Judgement(C, "", 3), counts=False)]
    assert combine(findings) is expected
    assert combine([*findings, *beside]) is expected


def test_missing_data_is_undecided() -> None:
    def judge() -> Judgement:
        raise TooLittleDataError("no runs")

    finding = find("part", "paper", judge)
    assert (finding.verdict, finding.judgement.why) == (U, "no runs")
