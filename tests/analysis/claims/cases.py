"""Runs for which it is known what each claim must come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis.claims import ClaimResult, evaluate_claims
from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from headway.study.protocols.names import GROUPS
from tests.analysis.made import controlled, exploration, together

POINTS = 40
SIZES = np.array([len(group) for group in GROUPS])


def curve_run(
    dataset: str,
    condition: str,
    method: str,
    seed: int,
    losses: ArrayLike = (1.0, 1.0, 1.0, 1.0),
    shares: ArrayLike | None = None,
    noise: float = 0.01,
) -> RunData:
    """A controlled run from its groups' losses and shares of draws: [4] for all epochs, or [points, 4]."""
    rng = np.random.default_rng([seed, *method.encode(), *dataset.encode(), *condition.encode()])
    ends = np.broadcast_to(np.asarray(losses, dtype=float), (POINTS, 4))
    ends = ends * (1 + noise * rng.normal(size=(1, 4))) * (1 + noise * rng.normal())
    uniform = SIZES / 10 if condition == "curriculum" else np.full(4, 0.25)
    parts = np.broadcast_to(uniform if shares is None else np.asarray(shares, dtype=float), (POINTS, 4))
    counts = np.round(1e6 * parts * (1 + noise * rng.normal(size=(1, 4)))).astype(int)
    if condition == "curriculum":
        ends, counts = np.repeat(ends, SIZES, 1), np.repeat(counts // SIZES, SIZES, 1)
    return controlled(ends, draws=counts, dataset=dataset, condition=condition, method=method, seed=seed)


def many(dataset: str, condition: str, method: str, seeds: int, **options: Any) -> list[RunData]:
    return [curve_run(dataset, condition, method, seed, **options) for seed in range(seeds)]


def rewards(condition: str, levels: dict[str, float], seeds: int, spread: float = 0.1) -> list[RunData]:
    """Exploration runs that end at these levels."""
    return [
        exploration(
            np.full(20, level + spread * np.random.default_rng([seed, *method.encode()]).normal()),
            condition,
            method,
            seed,
        )
        for method, level in levels.items()
        for seed in range(seeds)
    ]


def judge(claim: str, runs: Sequence[RunData], bench: Any = None) -> ClaimResult:
    """What a claim comes to."""
    results = together(*runs)
    (protocol,) = results.protocols() or ("released",)
    (result,) = evaluate_claims(results, protocol, bench, only=[claim])
    return result


def all_of(results: Results) -> dict[str, str]:
    """The verdicts on all claims."""
    (protocol,) = results.protocols() or ("released",)
    return {result.claim.id: result.verdict.value for result in evaluate_claims(results, protocol)}
