from __future__ import annotations

from dataclasses import replace

import numpy as np

from headway.analysis.claims import evaluate_claims
from tests.analysis.claims.cases import judge, rewards
from tests.analysis.made import exploration, together

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
