"""The arena's numbers against hand calculations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headway.analysis import arena_tables as arena
from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from headway.runs import RunSpec, State


def made(method: str, seed: int, bonus: float = 3.0, room: str = "house-button", covered: float = 0.5) -> RunData:
    spec = RunSpec(experiment="arena", condition=room, method=method, seed=seed, params={"steps": 200})
    columns = {
        "env_steps": np.array([100.0, 200.0]),
        "episodes": np.array([2.0, 6.0]),
        "goals": np.array([0.0, 3.0]),
        "first_goal": np.array([0.0, 150.0]),
        "covered": np.array([0.1, covered]),
        "episode_return": np.array([0.0, 0.25]),
        "bonus_noise": np.array([math.nan, bonus]),
        "bonus_quiet": np.array([2.0, 1.0]),
        "noise_time_share": np.array([0.0, 0.5]),
        "steps_per_second": np.array([100.0, 50.0]),
    }
    return RunData(spec.run_id, spec, State.DONE, columns)


def test_a_run_in_numbers() -> None:
    found = arena.summarise(made("rnd", 0))
    assert found.preference == pytest.approx(3.0 / ((2 * 1 + 1 * 0.5) / 1.5))
    assert found.noise == 0.25
    assert found.covered == 0.5
    assert found.reached == 3 / 4
    assert found.first == 150
    assert found.seconds == 3.0
    assert found.returned == 0.25
    assert found.steps == 200


def test_a_bonus_that_can_be_negative_has_no_preference() -> None:
    assert math.isnan(arena.summarise(made("iac", 0, bonus=-1.0)).preference)


def test_gmc_beside_the_error() -> None:
    runs = [made("rnd", seed, bonus=3.0 + seed) for seed in range(3)]
    runs += [made("rnd+gmc", seed, bonus=1.0 + seed / 10, covered=0.4) for seed in range(3)]
    (row,) = arena.effect_of_gmc(Results(tuple(runs))).rows
    assert row[0] == "rnd"
    assert str(row[3]).startswith("1.00")
    assert str(row[4]).startswith("0.00")


def test_runs_that_are_solved_with_the_error_and_with_gmc() -> None:
    lost = made("rnd", 0)
    lost.columns["goals"][:] = 0
    results = Results((lost, made("rnd", 1), made("rnd+gmc", 0), made("icm", 0), made("icm+gmc", 0, room="chain-tv")))
    table = arena.solved_with_gmc(results)
    assert table.columns[1:] == tuple(arena.KINDS)
    assert table.rows == [["rnd", "1 of 2 → 1 of 1", "–", "–"]]


def test_the_leaderboard_compares_with_ppo_and_says_what_is_missing() -> None:
    runs = [made("ppo", seed, covered=0.2 + seed / 100) for seed in range(3)]
    runs += [made("rnd", seed, covered=0.8 + seed / 100) for seed in range(3)]
    results = Results(tuple(runs))
    table = arena.leaderboard(results)
    assert [row[0] for row in table.rows] == ["rnd", "ppo"]
    assert str(table.rows[0][3]).startswith("1.00")
    assert table.rows[0][7] == "3 of 3"
    assert "no method in house-none" in arena.missing(results)
    assert "| rnd | 3 |" in arena.markdown(results)


def test_how_soon_the_end_of_the_chain_is_reached() -> None:
    late = made("ppo", 0, room="chain")
    late.columns["first_goal"][:] = 0
    table = arena.first_goals(Results((late, made("rnd", 0, room="chain"), made("rnd", 1, room="chain"))))
    assert table.rows == [["ppo", "0 of 1", "over 200", 200.0], ["rnd", "2 of 2", "150", 200.0]]
