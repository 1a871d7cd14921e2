from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from headway.analysis.claims import allocation
from headway.analysis.rundata import RunData
from tests.analysis.claims.cases import POINTS, SIZES, judge, many
from tests.analysis.made import controlled


def peaking(order: Sequence[int]) -> np.ndarray:
    """Shares of draws that peak in this order, and the groups that it leaves out last."""
    places = dict.fromkeys(range(4), 0.9) | {group: 0.15 + 0.2 * place for place, group in enumerate(order)}
    time = np.linspace(0, 1, POINTS)[:, None]
    waves = 1 + 0.3 * np.exp(-(((time - [places[group] for group in range(4)]) / 0.1) ** 2))
    shares = waves * SIZES
    return shares / shares.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ((0.1, 0.4, 0.9, 0.6), "reproduced"),
        ((0.1, 0.4, 0.6, 0.9), "contradicted"),
        ((0.1, 0.4, 0.6, 0.601), "undecided"),
    ],
)
def test_c1(losses: Sequence[float], verdict: str) -> None:
    result = judge("C1", many("cifar10", "curriculum", "uniform", 5, losses=losses))
    assert result.verdict == verdict


def test_c1_says_what_it_found() -> None:
    runs = many("cifar10", "curriculum", "uniform", 5, losses=(0.1, 0.4, 0.6, 0.9), noise=1e-4)
    (finding,) = judge("C1", runs).findings
    assert finding.judgement.ours == "G0 0.100 < G1 0.400 < G2 0.600 < G3 0.900"
    assert finding.judgement.why == "not so: G3 < G2"
    assert finding.judgement.n == 5


def test_c2_and_its_less_clear_part() -> None:
    curiosity = many("cifar10", "curriculum", "curiosity", 8, shares=peaking((3, 2, 1, 0)), noise=1e-3)
    gmc = many("cifar10", "curriculum", "gmc", 8, shares=peaking((1, 3, 2, 0)), noise=1e-3)
    result = judge("C2", [*curiosity, *gmc])
    assert [(finding.verdict.value, finding.counts) for finding in result.findings] == [
        ("reproduced", True),
        ("reproduced", True),
        ("contradicted", False),
    ]
    assert result.verdict == "reproduced"


def test_c2_contradicted() -> None:
    runs = many("cifar10", "curriculum", "curiosity", 8, shares=peaking((0, 1, 2, 3)), noise=1e-3)
    assert judge("C2", runs).verdict == "contradicted"


def test_c2_undecided_where_seeds_disagree() -> None:
    one = many("cifar10", "curriculum", "gmc", 4, shares=peaking((1, 3, 2)), noise=1e-3)
    two = many("cifar10", "curriculum", "gmc", 8, shares=peaking((3, 1, 2)), noise=1e-3)[4:]
    assert judge("C2", [*one, *two]).verdict == "undecided"


def test_a_few_seeds_decide_no_order_of_peaks() -> None:
    runs = many("mnist", "curriculum", "gmc", 7, shares=peaking((2, 3, 1)), noise=1e-3)
    finding = judge("C4", runs).findings[0]
    assert finding.verdict == "undecided"
    assert finding.judgement.why == "7 seeds, at least 8 are needed"


def wandering(seed: int, rng: np.random.Generator) -> RunData:
    """A run whose draws wander about uniform ones, so that no group peaks before another but by chance."""
    steps = rng.normal(0, 0.05, (100, 10))
    logits = np.zeros(10)
    shares = np.empty((100, 10))
    for epoch, step in enumerate(steps):
        logits = 0.98 * logits + step
        shares[epoch] = np.exp(logits) / np.exp(logits).sum()
    draws = np.round(50_000 * shares).astype(int)
    return controlled(np.ones((100, 10)), draws=draws, dataset="cifar10", condition="curriculum", seed=seed)


@pytest.mark.parametrize(("seeds", "most"), [(3, 0), (5, 0), (8, 5)])
def test_c2_seldom_calls_chance_an_order(seeds: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "RESAMPLES", 200)
    rng = np.random.default_rng(1)
    verdicts = [judge("C2", [wandering(seed, rng) for seed in range(seeds)]).verdict.value for _ in range(40)]
    assert verdicts.count("contradicted") <= most  # two of 40 are expected; three seeds, judged alike, call 10
    assert verdicts.count("reproduced") == 0


def test_an_epoch_without_draws_decides_no_order_of_peaks() -> None:
    runs = many("mnist", "curriculum", "gmc", 8, shares=peaking((2, 3, 1)), noise=1e-3)
    draws = runs[0].columns["train_count"].copy()
    draws[5] = 0
    runs[0] = replace(runs[0], columns={**runs[0].columns, "train_count": draws})
    finding = judge("C4", runs).findings[0]
    assert finding.verdict == "undecided"
    assert "an epoch without draws" in finding.judgement.why


def test_c3() -> None:
    wide, narrow, middle = (0.1, 0.5, 1.0, 1.5), (0.7, 0.8, 0.85, 0.9), (0.3, 0.6, 0.9, 1.2)
    for dataset in ("mnist", "cifar10"):
        runs = many(dataset, "curriculum", "uniform", 4, losses=middle)
        runs += many(dataset, "curriculum", "curiosity", 4, losses=narrow)
        good = runs + many(dataset, "curriculum", "gmc", 4, losses=wide)
        bad = runs + many(dataset, "curriculum", "gmc", 4, losses=narrow)
        here = [f for f in judge("C3", good).findings if f.judgement.ours]
        assert [finding.verdict.value for finding in here] == ["reproduced"] * 3
        assert [finding.counts for finding in here] == [True, True, False]  # without the easiest group it only informs
        assert judge("C3", good).verdict == "undecided"  # the other dataset is missing
        assert judge("C3", bad).verdict == "contradicted"


def test_c4() -> None:
    gmc = many("mnist", "curriculum", "gmc", 8, shares=peaking((2, 3, 1)), noise=1e-3)
    curiosity = many("mnist", "curriculum", "curiosity", 8, shares=peaking((3, 2, 1)), noise=1e-3)
    assert judge("C4", [*gmc, *curiosity]).verdict == "reproduced"
    assert judge("C4", many("mnist", "curriculum", "gmc", 8, shares=peaking((3, 2, 1)), noise=1e-3)).verdict == (
        "contradicted"
    )


def test_c11() -> None:
    uniform = many("mnist", "curriculum", "uniform", 4, losses=(0.1, 0.9, 0.2, 0.3))  # G1 is the hardest
    boosted, level = (0.05, 0.5, 0.2, 0.25), (0.1, 0.2, 0.3, 0.4)
    gmc = many("mnist", "curriculum", "gmc", 4, shares=boosted)
    norm_all = many("mnist", "curriculum", "norm_all", 4, shares=level)
    assert judge("C11", [*uniform, *gmc, *norm_all]).verdict == "reproduced"
    other = many("mnist", "curriculum", "norm_all", 4, shares=boosted)
    result = judge("C11", [*uniform, *gmc, *other])
    assert [finding.verdict.value for finding in result.findings] == ["reproduced", "contradicted", "undecided"]


def test_c11_does_not_ask_a_run_that_diverged_what_is_hardest() -> None:
    uniform = many("mnist", "curriculum", "uniform", 4, losses=(0.1, 0.9, 0.2, 0.3))
    runs = uniform + many("mnist", "curriculum", "gmc", 4, shares=(0.05, 0.5, 0.2, 0.25))
    losses = uniform[2].columns["test_loss"].copy()
    losses[30:, 0] = np.nan  # G0, which would be taken for the hardest
    runs[2] = replace(uniform[2], columns={**uniform[2].columns, "test_loss": losses})
    result = judge("C11", runs)
    assert {finding.verdict.value for finding in result.findings} == {"undecided"}
    assert "is not finite for seed 2" in result.findings[0].judgement.why


def test_another_dataset_is_shown_and_does_not_count() -> None:
    runs = many("digits", "curriculum", "uniform", 5, losses=(0.1, 0.4, 0.6, 0.9))
    result = judge("C1", runs)
    assert result.verdict == "not tested"
    assert [(finding.part.split(":")[0], finding.counts) for finding in result.findings] == [
        ("CIFAR-10", True),
        ("Digits", False),
    ]
