"""The preset `quick` solves its grid: the mean return without the factor 10 ends above 0.9."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.runs import RunStore
from headway.runs.experiments import Context
from headway.study import doorkey
from headway.study.protocols.minigrid import ExplorationProtocol

SOLVED = 0.9


@pytest.mark.soak
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("method", ["ppo", "icm+gmc"])
def test_quick_solves_its_grid(tmp_path: Path, method: str, seed: int) -> None:
    """Under a minute each on a core of its own."""
    (spec,) = doorkey.specs([method], ["none"], [seed], ExplorationProtocol.quick(), "quick")
    store = RunStore(tmp_path)
    with store.lock(spec) as run:
        doorkey.run(run, Context())
    assert store.metrics(spec.run_id)["episode_return"][-1] / 10 > SOLVED


@pytest.mark.slow
def test_quick_is_on_its_way_after_half_of_it() -> None:
    """The short form: one seed, until ten episodes in a row are solved."""
    (spec,) = doorkey.specs(["ppo"], ["none"], [0], ExplorationProtocol.quick(), "quick")
    ppo = doorkey.make(spec, Context())
    best = 0.0
    while best <= SOLVED and ppo.env_steps < 120_000:
        row = ppo.iterate()
        assert row is not None
        best = max(best, row["episode_return"] / 10 if row["episodes"] >= 10 else 0.0)
    ppo.close()
    assert best > SOLVED
