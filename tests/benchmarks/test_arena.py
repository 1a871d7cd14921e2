"""The tables of docs/arena.md against hand calculations."""

from __future__ import annotations

from benchmarks import arena
from headway.analysis.results import Results
from tests.analysis.test_arena_tables import made


def test_gmc_beside_the_error() -> None:
    runs = [made("rnd", seed, bonus=3.0 + seed) for seed in range(3)]
    runs += [made("rnd+gmc", seed, bonus=1.0 + seed / 10, covered=0.4) for seed in range(3)]
    (row,) = arena.effect_of_gmc(Results(tuple(runs))).rows
    assert row[0] == "rnd"
    assert str(row[3]).startswith("1.00")
    assert str(row[4]).startswith("0.00")


def test_the_page_says_what_is_missing() -> None:
    results = Results(tuple(made("rnd", seed) for seed in range(3)))
    assert "no method in house-none" in arena.missing(results)
    assert "| rnd | 3 |" in arena.markdown(results)


def test_how_soon_the_end_of_the_chain_is_reached() -> None:
    late = made("ppo", 0, room="chain")
    late.columns["first_goal"][:] = 0
    table = arena.first_goals(Results((late, made("rnd", 0, room="chain"), made("rnd", 1, room="chain"))))
    assert table.rows == [["ppo", "0 of 1", "over 200", 200.0], ["rnd", "2 of 2", "150", 200.0]]
