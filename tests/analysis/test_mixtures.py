"""The analysis of the mixture study, by hand, and its page."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.mixtures import PAGE, RESULTS, made
from headway.analysis import load_results
from headway.analysis.mixtures import (
    collect,
    complete,
    conditions,
    cost,
    loss_at_equal_time,
    outcome,
    render,
    share_of_gain,
)
from headway.analysis.rundata import Progress, RunData
from headway.commands.campaign_file import read_campaign_file
from headway.runs import RunSpec, State
from headway.study.protocols.mixtures import HELD_OUT, TUNING


def run(method: str, losses: list[float], seconds: float = 1.0, mixture: str = "digits", seed: int = 0) -> RunData:
    spec = RunSpec(experiment="mixture", condition=mixture, method=method, seed=seed)
    rows = len(losses)
    columns = {
        "step": np.arange(1, rows + 1) * 10,
        "loss": np.array(losses),
        "seconds": np.full(rows, seconds),
        "plain_seconds": np.full(rows, 2.0),
    }
    return RunData(spec.run_id, spec, State.DONE, columns, Progress())


UNIFORM = run("uniform", [4.0, 3.0, 2.0, 1.0], 2.0)


def test_the_loss_at_equal_time_is_read_off_the_curve() -> None:
    twice = run("gmc", [4.0, 2.0, 1.0, 0.5], 4.0)
    assert cost(twice) == 2.0
    assert loss_at_equal_time(twice, UNIFORM) == pytest.approx(2.0)  # half of the steps
    slower = run("gmc", [4.0, 2.0, 1.0, 0.5], 2.0 * 40 / 35)
    assert loss_at_equal_time(slower, UNIFORM) == pytest.approx(0.75)  # 35 of 40 steps
    assert loss_at_equal_time(run("loss", [4.0, 2.0, 1.0, 0.5], 1.0), UNIFORM) == pytest.approx(0.5)


def test_relative_losses_and_the_share_of_the_gain() -> None:
    runs = collect([UNIFORM, run("oracle", [4.0, 2.0, 1.0, 0.25], 2.0), run("gmc", [4.0, 2.0, 1.0, 0.5], 4.0)])
    gmc, oracle = outcome(runs, "digits", "gmc"), outcome(runs, "digits", "oracle")
    assert gmc is not None
    assert oracle is not None
    assert gmc.samples == pytest.approx([math.log(0.5)])
    assert gmc.time == pytest.approx([math.log(2.0)])
    assert gmc.costs == [2.0]
    assert share_of_gain(gmc, oracle) == pytest.approx(0.5)
    assert outcome(runs, "sums", "gmc") is None
    assert complete(runs) == ["digits"]
    assert "| gmc | GMC, relative floor 1 | 0.500 | 2.000 | 2.000 | 0.500 | 2.000 |" in render(runs)


def test_the_three_conditions() -> None:
    """A method that meets all, one that is too slow on one mixture, and one that gains too little."""
    runs = []
    for mixture in (*TUNING, *HELD_OUT):
        runs += [run("uniform", [4.0, 3.0, 2.0, 1.0], 2.0, mixture), run("oracle", [4.0, 2.0, 1.0, 0.5], 2.0, mixture)]
        runs.append(run("gmc", [4.0, 2.0, 1.0, 0.75], 2.0, mixture))  # gets log 0.75 / log 0.5 = 41.5%
        runs.append(run("norm_last", [4.0, 2.0, 1.0, 1.03 if mixture == "sums" else 0.6], 2.0, mixture))
        runs.append(run("loss", [4.0, 2.0, 1.0, 0.9], 2.0, mixture))  # log 0.9 / log 0.5 = 15.2%
    rows = {row[0]: row[1:] for row in conditions(collect(runs)).rows}
    assert list(rows) == ["gmc", "loss", "norm_last"]
    assert rows["gmc"] == ["0.750, 0.750", "0.750, 0.750", "0.415, 0.415", "1, 2, 3"]
    assert rows["loss"] == ["0.900, 0.900", "0.900, 0.900", "0.152, 0.152", "1, 2"]
    mean = (0.6**3 * 1.03) ** 0.25
    gain = (3 * math.log(0.6) + math.log(1.03)) / 4 / math.log(0.5)
    assert rows["norm_last"] == [f"0.600, {mean:.3f}", "0.600, 1.030", f"0.737, {gain:.3f}", "1, 3"]


def test_a_run_is_compared_with_uniform_sampling_of_its_campaign() -> None:
    """In the second campaign all steps but plain ones take twice as long; gmc is in both, loss in the first."""
    first = [UNIFORM, run("loss", [4.0, 2.0, 1.0, 0.5], 4.0), run("gmc", [4.0, 2.0, 1.0, 0.6], 4.0)]
    second = [run("uniform", [4.0, 3.0, 2.0, 1.0], 4.0), run("gmc", [4.0, 2.0, 1.0, 0.5], 4.0)]
    runs = collect(first, second)
    loss, gmc = outcome(runs, "digits", "loss"), outcome(runs, "digits", "gmc")
    assert loss is not None
    assert gmc is not None
    assert loss.costs == [2.0]
    assert gmc.costs == [1.0]
    assert gmc.time == pytest.approx([math.log(0.5)])


def test_a_seed_counts_only_beside_uniform() -> None:
    runs = collect([UNIFORM, run("gmc", [4.0, 0.5], seed=1)])
    assert outcome(runs, "digits", "gmc") is None


@pytest.mark.slow
def test_the_page_is_that_of_the_runs() -> None:
    text = PAGE.read_text("utf-8")
    assert made(text) == text, "run: python benchmarks/mixtures.py"


def test_the_runs_are_those_of_the_campaign() -> None:
    (section,) = read_campaign_file(RESULTS.parent.parent / "campaigns" / "mixture.toml").sections
    known = {spec.run_id for spec in section.specs()}
    found = load_results(RESULTS)
    assert {each.id for each in found} <= known
    assert all(each.finished for each in found)
