from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from headway.analysis.claims.areas import BASELINES, CONDITIONS, PAPER_T, _are_apart, _compare, worse
from headway.analysis.claims.verdicts import Verdict
from headway.analysis.rundata import RunData
from headway.analysis.stats import Estimate
from tests.analysis.claims.cases import curve_run, judge, many

ALL = ("gmc", *BASELINES)


def flat(dataset: str, condition: str, levels: Mapping[str, float], seeds: int, noise: float = 0.002) -> list[RunData]:
    """Runs whose losses stay at a level for each signal."""
    return [
        run
        for method, level in levels.items()
        for run in many(dataset, condition, method, seeds, losses=(level,) * 4, noise=noise)
    ]


@pytest.mark.parametrize(
    ("t", "p", "n", "paper", "mark", "verdict"),
    [
        (-5.0, 1e-5, 3, -6.0, "**", "reproduced"),
        (-5.0, 0.002, 3, -6.0, "**", "undecided"),  # significant, but not at the paper's level
        (-5.0, 0.002, 20, -6.0, "**", "undecided"),
        (-1.0, 0.3, 3, -6.0, "**", "undecided"),
        (-1.0, 0.3, 20, -6.0, "**", "contradicted"),
        (+3.0, 0.01, 5, -6.0, "**", "contradicted"),
        (+1.0, 0.3, 5, -6.0, "**", "undecided"),
        (-2.5, 0.02, 5, -2.2, "*", "reproduced"),
        (-2.5, 1e-6, 5, -2.2, "*", "reproduced"),
        (-1.0, 0.3, 20, -2.2, "*", "undecided"),  # as likely as not if the paper is right
        (+0.5, 0.6, 20, -2.2, "*", "undecided"),  # both can be off: no effect clearly apart from the paper's
        (+3.0, 0.005, 20, -2.2, "*", "contradicted"),
        (-1.8, 0.08, 20, -4.1, "**", "undecided"),
        (-1.0, 0.3, 20, -9.0, "**", "contradicted"),
        (+1.8, 0.08, 20, -332.0, "**", "contradicted"),
        (-1.0, 0.3, 3, -0.3, "ns", "undecided"),
        (-1.0, 0.3, 20, -0.3, "ns", "reproduced"),
        (+1.0, 0.3, 20, -0.3, "ns", "reproduced"),  # the sign of what is no difference says nothing
        (-2.2, 0.04, 20, -0.3, "ns", "undecided"),
        (-3.7, 0.0007, 20, -1.7, "ns", "undecided"),  # clear, but the paper's may have been as large
        (-6.0, 1e-6, 20, -0.3, "ns", "contradicted"),
        (-9.0, 1e-6, 5, -0.3, "ns", "contradicted"),
    ],
)
def test_a_row_of_the_table(t: float, p: float, n: int, paper: float, mark: str, verdict: str) -> None:
    found, why = _compare(t, p, n, paper, mark, _are_apart(t, 2 * n - 2, n / 2, paper))
    assert found == verdict
    assert bool(why) == (found is not Verdict.REPRODUCED)


def test_a_repetition_of_the_paper_seldom_contradicts_it() -> None:
    from scipy import stats

    rng = np.random.default_rng(0)
    contradicted = np.zeros(300, dtype=bool)
    rows = [row for rows in PAPER_T.values() for row in rows if abs(row[0]) < 12]
    for paper, mark in rows:
        effects = (paper + rng.normal(0, 1, (300, 1))) * np.sqrt(2 / 20)  # what the paper measured is not exact either
        ours, theirs = effects + rng.normal(0, 1, (300, 20)), rng.normal(0, 1, (300, 20))
        tests = stats.ttest_ind(ours, theirs, axis=1, equal_var=False)
        found = [
            _compare(t, p, 20, paper, mark, _are_apart(t, df, 10, paper))[0]
            for t, p, df in zip(tests.statistic, tests.pvalue, tests.df, strict=True)
        ]
        contradicted |= [verdict is Verdict.CONTRADICTED for verdict in found]
    assert len(rows) == 10
    assert contradicted.mean() <= 0.05


def test_c8_calls_nothing_worse_that_c7_does_not() -> None:
    levels = {"gmc": 1.001, "uniform": 1.0}
    runs = [run for condition, dataset in CONDITIONS for run in flat(dataset, condition, levels, 20, noise=0.0)]
    rng = np.random.default_rng(0)
    shifts = dict(enumerate(rng.normal(0, 0.02, 20)))  # runs of one seed go up and down together
    for run in runs:
        run.columns["test_loss"] += shifts[run.seed] + rng.normal(0, 1e-4)
    assert judge("C7", runs).findings[0].verdict == "reproduced"
    assert judge("C8", runs).findings[0].verdict == "reproduced"


def test_c8_says_where_seeds_are_missing() -> None:
    runs = flat("mnist", "noise", {"uniform": 1.0, "norm_all": 1.2}, 1)
    judgement = judge("C8", runs).findings[3].judgement
    missing = "no runs in Curriculum+MNIST, Curriculum+CIFAR-10, Noise+CIFAR-10"
    assert (judgement.n, judgement.why) == (1, f"{missing}; fewer than 3 seeds in Noise+MNIST")


def test_c8_says_where_a_run_diverged() -> None:
    runs = flat("mnist", "noise", {"uniform": 1.0, "norm_all": 1.0}, 4)
    runs += flat("mnist", "curriculum", {"uniform": 1.0, "norm_all": 1.0}, 4)
    runs.append(curve_run("mnist", "noise", "norm_all", 9, losses=(np.nan,) * 4))
    judgement = judge("C8", runs).findings[3].judgement
    missing = "no runs in Curriculum+CIFAR-10, Noise+CIFAR-10"
    assert judgement.why == f"not worse elsewhere; {missing}; a run diverged in Noise+MNIST"


def test_c7_has_the_twenty_rows_of_the_paper() -> None:
    result = judge("C7", [])
    assert len(result.findings) == 20
    assert result.findings[7].part == "Curriculum+CIFAR-10: GMC against NormLast"
    assert result.findings[7].paper == "t = -1.769 ns"
    assert all(len(row) == len(BASELINES) for row in PAPER_T.values())
    marks = [mark for row in PAPER_T.values() for _, mark in row]
    assert (marks.count("**"), marks.count("*"), marks.count("ns")) == (12, 1, 7)


def test_c7_by_scipy() -> None:
    from scipy import stats

    runs = flat("mnist", "noise", {"gmc": 1.0, "curiosity": 1.3}, 4)
    finding = judge("C7", runs).findings[11]
    assert finding.part == "Noise+MNIST: GMC against Curiosity"
    ours, theirs = (
        [run.columns["test_loss"].mean(1).sum() for run in runs if run.method == m] for m in ("gmc", "curiosity")
    )
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    assert finding.judgement.ours == f"t = {expected.statistic:.3f}, p < 0.001"
    assert finding.verdict == "reproduced"
    assert finding.judgement.n == 4


def test_c7_without_spread_over_seeds() -> None:
    judgement = judge("C7", flat("mnist", "noise", {"gmc": 1.0, "uniform": 1.5}, 5, noise=0.0)).findings[10].judgement
    assert judgement.verdict == "undecided"
    assert (judgement.ours, judgement.n) == ("areas 40 against 60", 5)
    assert judgement.why == "no test: no spread over seeds"


def test_c8() -> None:
    good = {"gmc": 0.98, "uniform": 1.0, "curiosity": 1.3, "norm_last": 1.2, "norm_all": 1.1, "delta_loss": 1.1}
    runs = [run for condition, dataset in CONDITIONS for run in flat(dataset, condition, good, 4)]
    assert judge("C8", runs).verdict == "reproduced"
    rival = [run for condition, dataset in CONDITIONS for run in flat(dataset, condition, {**good, "norm_all": 0.9}, 4)]
    result = judge("C8", rival)
    assert [f.verdict.value for f in result.findings if f.part.startswith("NormAll")] == ["contradicted"]
    worse = [run for condition, dataset in CONDITIONS for run in flat(dataset, condition, {**good, "gmc": 1.2}, 4)]
    assert judge("C8", worse).findings[0].verdict == "contradicted"
    part = [run for condition, dataset in CONDITIONS[:2] for run in flat(dataset, condition, good, 4)]
    verdicts = [f.verdict.value for f in judge("C8", part).findings]
    assert verdicts == ["undecided", *["reproduced"] * 4]  # worse in one condition is enough


def test_c8_where_intervals_cover_both_answers() -> None:
    levels = {"gmc": 1.0, "uniform": 1.0, "curiosity": 1.0}
    runs = [run for condition, dataset in CONDITIONS for run in flat(dataset, condition, levels, 3, noise=0.1)]
    result = judge("C8", runs)
    assert result.findings[0].verdict == "undecided"
    assert "covers both answers" in result.findings[0].judgement.why
    assert result.findings[1].verdict == "undecided"


def test_c9() -> None:
    levels = {"uniform": 1.0, "norm_last": 1.4, "curiosity": 1.5, "norm_all": 1.1, "delta_loss": 1.05}
    both = ("mnist", "cifar10")
    assert judge("C9", [r for d in both for r in flat(d, "noise", levels, 4)]).verdict == "reproduced"
    close = {**levels, "norm_all": 1.45}
    result = judge("C9", [r for d in both for r in flat(d, "noise", close, 4)])
    assert result.verdict == "contradicted"
    assert "NormLast > NormAll" in result.findings[4].judgement.why


def test_what_is_comparable_to_uniform_is_not_worse() -> None:
    levels = {"uniform": 1.0, "norm_last": 1.4, "curiosity": 1.5, "norm_all": 1.1, "delta_loss": 1.0}
    result = judge("C9", flat("mnist", "noise", levels, 4))
    found = {finding.part: finding.judgement for finding in result.findings}
    assert found["MNIST: DeltaLoss / Uniform"].verdict == "contradicted"
    assert found["MNIST: DeltaLoss / Uniform"].why == "comparable to Uniform's"
    assert result.verdict == "contradicted"


@pytest.mark.parametrize(
    ("low", "high", "verdict", "needed"),
    [
        (1.001, 1.03, "reproduced", None),  # small, but above 1
        (0.97, 1.049, "contradicted", None),
        (0.9, 0.99, "contradicted", None),
        (0.99, 1.09, "undecided", 12),  # t(11) s / sqrt(12) < 0.04 first at 12, with s = 0.05 * sqrt(8) / t(7)
    ],
)
def test_worse_than_uniform(low: float, high: float, verdict: str, needed: int | None) -> None:
    judgement = worse(Estimate((low + high) / 2, low, high, 8), "")
    assert (judgement.verdict, judgement.needed if needed else None) == (verdict, needed)
    assert worse(Estimate(1.0, 0.99, 1.01, 2), "").verdict == "undecided"


def test_c10() -> None:
    def runs(dataset: str, norm_last: float, wide: float) -> list[RunData]:
        level = {"uniform": 1.0, "norm_last": norm_last}
        found = flat(dataset, "curriculum", level, 20)
        for method in ("norm_all", "delta_loss"):
            found += many(dataset, "curriculum", method, 20, losses=(1.5,) * 4, noise=wide)
        return found

    good = [run for dataset in ("mnist", "cifar10") for run in runs(dataset, 1.01, 0.05)]
    assert judge("C10", good).verdict == "reproduced"
    narrow = judge("C10", runs("mnist", 1.2, 0.0001))
    verdicts = {finding.part: finding.verdict.value for finding in narrow.findings if finding.judgement.ours}
    assert verdicts == {
        "MNIST: NormAll / Uniform": "reproduced",
        "MNIST: NormAll, spread over seeds": "contradicted",
        "MNIST: DeltaLoss / Uniform": "reproduced",
        "MNIST: DeltaLoss, spread over seeds": "contradicted",
        "MNIST: NormLast / Uniform": "contradicted",
    }


def test_a_run_that_diverged_decides_nothing() -> None:
    runs = flat("mnist", "noise", {"gmc": 1.0, "curiosity": 1.3}, 4)
    runs.append(curve_run("mnist", "noise", "gmc", 9, losses=(np.nan,) * 4))
    finding = judge("C7", runs).findings[11]
    assert finding.verdict == "undecided"
    assert finding.judgement.why == "the loss of Noise+MNIST, GMC is not finite for seed 9"


def test_signals_without_a_common_seed_are_compared_all_the_same() -> None:
    runs = flat("mnist", "noise", {"uniform": 1.0}, 4) + [
        curve_run("mnist", "noise", "curiosity", seed, losses=(1.5,) * 4) for seed in range(10, 14)
    ]
    findings = {finding.part: finding for finding in judge("C9", runs).findings}
    assert findings["MNIST: Curiosity / Uniform"].verdict == "reproduced"
