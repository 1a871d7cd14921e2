from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headway.analysis.rundata import RunData
from headway.runs import State
from tests.analysis.claims.cases import POINTS, judge, many
from tests.analysis.made import made
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
