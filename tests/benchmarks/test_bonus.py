"""Bonuses with their default settings: a short form of `benchmarks/bonus.py`, and what it has stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from benchmarks.bonus import METHODS, main, table

STORED = Path(__file__).parents[2] / "benchmarks" / "results" / "bonus.json"


@pytest.mark.soak
def test_a_bonus_opens_the_lock_that_ppo_does_not() -> None:
    found = main(["--task", "lock", "--method", "ppo", "icm+gmc", "--seeds", "0:2"])["lock"]
    assert max(found["ppo"].values()) < 0.05
    assert np.mean(list(found["icm+gmc"].values())) > 0.3


def test_what_is_stored_shows_that_bonuses_do_no_harm_and_help_where_they_are_needed() -> None:
    found = json.loads(STORED.read_text("utf-8"))["returns"]
    means = {
        task: {method: np.mean([found[task][method][str(seed)] for seed in range(6)]) for method in METHODS}
        for task in ("doorkey", "lock")
    }
    assert min(means["doorkey"]["icm"], means["doorkey"]["icm+gmc"]) >= means["doorkey"]["ppo"]
    assert min(means["lock"]["icm"], means["lock"]["icm+gmc"]) > means["lock"]["ppo"]


@pytest.mark.parametrize("name", ["bonus", "zoo"])
def test_the_page_has_the_table_of_what_is_stored(name: str) -> None:
    found = json.loads((STORED.parent / f"{name}.json").read_text("utf-8"))["returns"]
    page = (STORED.parents[2] / "docs" / "howto" / "sb3.md").read_text("utf-8")
    assert f"<!-- {name}: begin -->\n{table(found)}\n<!-- {name}: end -->" in page


def test_with_the_settings_of_the_zoo_doorkey_is_solved_with_every_seed() -> None:
    found = json.loads((STORED.parent / "zoo.json").read_text("utf-8"))["returns"]
    assert min(min(found["zoo"][method].values()) for method in ("ppo", "icm+gmc")) > 0.95
    assert max(found["zoo-bytes"]["ppo"].values()) < 0.05


def test_rows_are_kept_and_not_computed_again(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    options = ["--task", "lock", "--method", "icm+gmc", "--seeds", "3:4", "--steps", "2048", "--out", str(out)]
    first = main([*options, "--set", "floor=1.0"])
    assert list(first["lock"]) == ["icm+gmc floor=1.0"]
    kept = json.loads(out.read_text("utf-8"))
    kept["returns"]["lock"]["icm+gmc floor=1.0"]["3"] = 0.125
    out.write_text(json.dumps(kept), encoding="utf-8")
    again = main([*options, "--set", "floor=1.0"])
    assert again["lock"]["icm+gmc floor=1.0"] == {"3": 0.125}
    assert table(again).splitlines()[-1] == "| lock | icm+gmc floor=1.0 | 0.12 | – | 0.12 |"
