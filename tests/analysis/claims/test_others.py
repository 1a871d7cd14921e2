from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headway.analysis.claims import evaluate_claims
from headway.analysis.rundata import RunData
from headway.runs import State
from tests.analysis.claims.cases import POINTS, judge, many, rewards
from tests.analysis.made import exploration, made, together
from tests.analysis.stores import controlled_spec

UNIFORM = np.array([0.1, 0.2, 0.3, 0.4])


def restless(size: float) -> np.ndarray:
    """Shares that go up and down from one epoch to the next."""
    swing = size * (-1.0) ** np.arange(POINTS)[:, None] * np.array([1, -1, 1, -1]) * UNIFORM
    return UNIFORM + swing


def test_c12() -> None:
    early = restless(0.1)
    early[: POINTS // 5, 0] += 0.3
    gmc = many("cifar10", "curriculum", "gmc", 4, shares=restless(0.02), noise=1e-3)
    cosine = many("cifar10", "curriculum", "cosine", 4, shares=early, noise=1e-3)
    assert judge("C12", [*gmc, *cosine]).verdict == "reproduced"
    calm = many("cifar10", "curriculum", "cosine", 4, shares=restless(0.01), noise=1e-3)
    assert [f.verdict.value for f in judge("C12", [*gmc, *calm]).findings] == ["undecided", "contradicted"]


def test_c13() -> None:
    far, near = (0.05, 0.15, 0.3, 0.5), (0.09, 0.19, 0.3, 0.42)
    gmc = many("cifar10", "curriculum", "gmc", 4, shares=far, losses=(1.0,) * 4, noise=1e-3)
    dot = many("cifar10", "curriculum", "dot", 4, shares=near, losses=(1.05,) * 4, noise=1e-3)
    assert judge("C13", [*gmc, *dot]).verdict == "reproduced"
    other = many("cifar10", "curriculum", "dot", 4, shares=(0.01, 0.09, 0.3, 0.6), losses=(0.9,) * 4, noise=1e-3)
    assert [f.verdict.value for f in judge("C13", [*gmc, *other]).findings] == ["contradicted", "contradicted"]


WITHOUT = {"ppo": 9.0, "icm+gmc": 8.5, "icm": 8.0, "gmc": 7.5}
WITH = {"icm+gmc": 8.0, "gmc": 7.0, "ppo": 5.0, "icm": 4.0}


def test_c14() -> None:
    assert judge("C14", rewards("none", WITHOUT, 8)).verdict == "reproduced"
    assert judge("C14", rewards("none", WITHOUT, 8, spread=3)).verdict == "undecided"
    assert judge("C14", rewards("none", {**WITHOUT, "gmc": 9.5}, 8)).verdict == "contradicted"
    assert judge("C14", rewards("none", WITHOUT, 2)).verdict == "undecided"


def test_c15() -> None:
    good = rewards("none", WITHOUT, 8) + rewards("door", WITH, 8)
    assert judge("C15", good).verdict == "reproduced"
    bad = rewards("none", WITHOUT, 8) + rewards("door", {**WITH, "gmc": 5.5, "ppo": 8.9}, 8)
    verdicts = [f.verdict.value for f in judge("C15", bad).findings]
    assert verdicts == ["contradicted", "contradicted", "contradicted"]
    only_noise = judge("C15", rewards("door", WITH, 8))
    assert [f.verdict.value for f in only_noise.findings] == ["reproduced", "not tested", "not tested"]


def test_a_run_without_an_episode_at_its_end_decides_nothing() -> None:
    runs = rewards("none", WITHOUT, 4)
    runs.append(exploration(np.full(20, np.nan), "none", "ppo", 9))
    (finding,) = judge("C14", runs).findings
    assert "ends without an episode" in finding.judgement.why


def test_other_environments_are_shown_and_do_not_count() -> None:
    small = [
        replace(run, spec=replace(run.spec, params={**run.spec.params, "env_id": "MiniGrid-DoorKey-5x5-v0"}))
        for run in rewards("none", {**WITHOUT, "gmc": 9.5}, 8) + rewards("door", WITH, 8)
    ]
    for claim, others in (("C14", 1), ("C15", 3)):
        result = judge(claim, small)
        assert result.verdict == "not tested"
        there = [finding for finding in result.findings if finding.judgement.ours]
        assert [finding.counts for finding in there] == [False] * others
        assert all(finding.part.startswith("DoorKey-5x5: ") for finding in there)
    assert judge("C14", small).findings[1].verdict == "contradicted"
    assert "no finished runs of MiniGrid-DoorKey-8x8-v0" in judge("C14", small).findings[0].judgement.why


def test_the_probability_of_the_papers_order() -> None:
    """Of two seeds each, PPO's samples have the means 0.9, 0.9, 0.1, 0.5 and 0.5; those of the others do not vary."""
    levels = {"ppo": (9.0, 1.0), "icm+gmc": (4.0, 4.0), "icm": (3.0, 3.0), "gmc": (2.0, 2.0)}
    runs = [
        exploration(np.full(20, level), "none", method, seed)
        for method, pair in levels.items()
        for seed, level in enumerate(pair)
    ]
    (finding,) = judge("C14", runs).findings
    assert "PPO 0.50 > ICM+GMC 0.40" in finding.judgement.ours
    assert "the paper's order has probability 0.75 (0.04 by chance)" in finding.judgement.ours
    sure = judge("C15", rewards("none", WITHOUT, 8) + rewards("door", WITH, 8))
    assert all("probability 1.00" in finding.judgement.ours for finding in sure.findings)


def test_exploration_of_another_protocol_counts_for_the_released_one() -> None:
    several = rewards("none", WITHOUT, 8)
    few = [
        replace(run, spec=replace(run.spec, params={**run.spec.params, "steps": 4096}))
        for run in rewards("none", WITHOUT, 2)
    ]
    (claim,) = evaluate_claims(together(*few, *several), "released", only=["C14"])
    assert (claim.verdict, claim.protocol) == ("reproduced", several[0].protocol)
    (other,) = evaluate_claims(together(*several), "paper", only=["C14"])
    assert (other.verdict, other.protocol) == ("not tested", "paper")


def bench(low: float, median: float, high: float, keys: str = "ab", batch: float = 1.05) -> dict[str, Any]:
    timing = {"variant": "headway", "rounds": 40, "ratio": {"low": low, "median": median, "high": high}}
    seconds = {"gmc": batch, "curiosity": 1.0}
    loops = [{"inputs": inputs, "threads": 1, "batch": seconds} for inputs in (784, 3072)]
    return {"cases": [{"key": key, "timings": [timing]} for key in keys], "loops": loops}


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (bench(1.01, 1.02, 1.05), "reproduced"),
        (bench(1.5, 1.7, 1.8), "contradicted"),
        (bench(1.05, 1.1, 1.2), "undecided"),
        (bench(1.01, 1.02, 1.05, batch=1.3), "contradicted"),
        (bench(1.01, 1.02, 1.05, "a"), "undecided"),
        ({"cases": [{"key": "a", "timings": []}]}, "not tested"),
        (None, "not tested"),
    ],
)
def test_c16(measured: Any, verdict: str) -> None:
    assert judge("C16", [], measured).verdict == verdict


def bounded(*shares: float, **changes: Any) -> RunData:
    return made(controlled_spec(epochs=len(shares), **changes), momentum_within_bound=shares)


def test_c17_with_what_is_no_number() -> None:
    result = judge("C17", [bounded(np.nan, 1.0)])
    assert result.verdict == "undecided"
    assert result.findings[0].judgement.why == "the share is not a number in 1 of 2 epochs"
    assert judge("C17", [bounded(np.nan, 0.9)]).verdict == "contradicted"
    assert judge("C17", [bounded(np.nan, np.nan)]).verdict == "undecided"
    unfinished = replace(bounded(1.0, 0.5), state=State.RUNNING)
    assert judge("C17", [unfinished, bounded(1.0, 1.0, method="dot")]).verdict == "reproduced"


def test_c17() -> None:
    assert judge("C17", [bounded(1.0, 1.0)]).verdict == "reproduced"
    assert judge("C17", [bounded(1.0, 0.999)]).verdict == "contradicted"
    assert judge("C17", []).verdict == "not tested"
    assert judge("C17", [bounded(1.0, 0.5, beta_v=0.9)]).verdict == "not tested"  # its rates are not equal
    assert judge("C17", [bounded(1.0, 0.5, beta_v=0.999)]).verdict == "contradicted"
