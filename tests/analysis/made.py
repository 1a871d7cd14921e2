"""Runs made in memory, for tests that want to choose every number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from headway.runs import RunSpec, State
from tests.analysis.stores import controlled_spec, doorkey_spec


def made(spec: RunSpec, state: State = State.DONE, **columns: ArrayLike) -> RunData:
    return RunData(spec.run_id, spec, state, {name: np.asarray(values) for name, values in columns.items()})


def controlled(
    losses: ArrayLike, counts: ArrayLike | None = None, draws: ArrayLike | None = None, **options: Any
) -> RunData:
    """A controlled run with test losses [epochs, arms], test counts and train counts; both equal if not given."""
    losses = np.asarray(losses, dtype=float)
    ones = np.ones(losses.shape, dtype=int)
    return made(
        controlled_spec(epochs=len(losses), **options),
        test_loss=losses,
        test_count=ones if counts is None else np.asarray(counts),
        train_count=ones if draws is None else np.asarray(draws),
    )


def exploration(returns: ArrayLike, condition: str = "none", method: str = "ppo", seed: int = 0) -> RunData:
    """An exploration run with a mean episode return per rollout."""
    values = np.asarray(returns, dtype=float)
    spec = doorkey_spec(condition, method, seed, steps=2048 * len(values))
    return made(spec, episode_return=values, env_steps=2048 * np.arange(1, len(values) + 1))


def together(*runs: RunData) -> Results:
    return Results(tuple(sorted(runs, key=lambda run: run.order)))
