"""Claims about the area under the test-loss curve: who learns faster than whom."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from headway.analysis.claims.verdicts import (
    MIN_SEEDS,
    MOST_SEEDS,
    DivergedError,
    Evidence,
    Finding,
    Judgement,
    NoRunsError,
    TooLittleDataError,
    Verdict,
    above,
    all_positive,
    find,
    paired,
    register,
    seeds_needed,
    too_few,
    within,
)
from headway.analysis.stats import Estimate, contrast, scipy_stats, t_interval, unpaired_ratio, welch, why_untested
from headway.analysis.tables import relative_area
from headway.study.protocols.names import title

CONDITIONS = (("curriculum", "mnist"), ("curriculum", "cifar10"), ("noise", "mnist"), ("noise", "cifar10"))
BASELINES = ("uniform", "curiosity", "norm_last", "norm_all", "delta_loss")
FAR_WORSE, WORSE = ("norm_last", "curiosity"), ("norm_all", "delta_loss")
PAPER_SEEDS = 20
COMPARABLE = 0.05  # An area is comparable to Uniform's when it is off by less than this part of it
STRICT = 1 - 0.05 / len(CONDITIONS)  # Confidence where one condition is enough to decide

PAPER_T: Mapping[tuple[str, str], Sequence[tuple[float, str]]] = {
    ("curriculum", "mnist"): ((-0.332, "ns"), (0.483, "ns"), (-2.209, "*"), (-18.880, "**"), (-1.443, "ns")),
    ("curriculum", "cifar10"): ((-0.713, "ns"), (0.581, "ns"), (-1.769, "ns"), (-4.145, "**"), (-22.020, "**")),
    ("noise", "mnist"): ((-6.354, "**"), (-92.667, "**"), (-60.661, "**"), (-34.619, "**"), (-1.678, "ns")),
    ("noise", "cifar10"): ((-13.455, "**"), (-332.082, "**"), (-280.183, "**"), (-57.342, "**"), (-18.242, "**")),
}
"""The paper's Welch table, t of GMC against each of BASELINES with its mark: ** p < 0.001, * p < 0.05."""
ROWS = len(CONDITIONS) * len(BASELINES)
LEVELS = {"**": 0.001, "*": 0.05}


def published_t(condition: str, dataset: str, baseline: str) -> str:
    """The paper's t of GMC against a signal, with its mark; empty where it has none."""
    row = PAPER_T.get((condition, dataset))
    if row is None or baseline not in BASELINES:
        return ""
    t, mark = row[BASELINES.index(baseline)]
    return f"{t:.3f} {mark}"


@register(
    "C7",
    "the 20 rows of the Welch table: sign of t, and significant or not at 0.001 / 0.05",
    "Welch's t-test on the AUC per seed, GMC against each baseline; negative t: GMC is better",
)
def _welch_table(evidence: Evidence) -> Iterator[Finding]:
    for condition, dataset in CONDITIONS:
        for baseline, (t, mark) in zip(BASELINES, PAPER_T[condition, dataset], strict=True):
            part = f"{title(condition)}+{title(dataset)}: GMC against {title(baseline)}"
            yield find(part, f"t = {t} {mark}", _welch_row, evidence, dataset, condition, baseline, t, mark)


@register(
    "C8",
    "only GMC is comparable to or better than Uniform in all four conditions",
    f"AUC relative to Uniform, unpaired as in C7; comparable: the interval reaches 1 and ends below {1 + COMPARABLE}",
)
def _only_gmc(evidence: Evidence) -> Iterator[Finding]:
    yield find("GMC, in all four conditions", "comparable or better", _never_worse, evidence)
    for method in BASELINES[1:]:
        yield find(f"{title(method)}, somewhere", "worse than Uniform", _somewhere_worse, evidence, method)


@register(
    "C9",
    "noise: NormLast and Curiosity are far worse than Uniform; NormAll and DeltaLoss moderately",
    "AUC relative to Uniform; far: worse than both of the moderate ones",
)
def _worse_under_noise(evidence: Evidence) -> Iterator[Finding]:
    for dataset, counts in evidence.datasets("noise"):
        for method in (*FAR_WORSE, *WORSE):
            part = f"{title(dataset)}: {title(method)} / Uniform"
            how = "far above 1" if method in FAR_WORSE else "above 1"
            yield find(part, how, _against_uniform, evidence, dataset, "noise", method, above, 1.0, counts=counts)
        part = f"{title(dataset)}: NormLast and Curiosity against NormAll and DeltaLoss"
        yield find(part, "both higher than both", _far_apart, evidence, dataset, counts=counts)


@register(
    "C10",
    "curriculum: NormAll and DeltaLoss have poor AUC and high variance; NormLast about Uniform",
    "AUC relative to Uniform; spread over seeds against Uniform's by Levene's test",
)
def _worse_in_the_curriculum(evidence: Evidence) -> Iterator[Finding]:
    for dataset, counts in evidence.datasets("curriculum"):
        for method in WORSE:
            name = f"{title(dataset)}: {title(method)}"
            of = evidence, dataset, "curriculum", method
            yield find(f"{name} / Uniform", "above 1", _against_uniform, *of, above, 1.0, counts=counts)
            yield find(f"{name}, spread over seeds", "above Uniform's", _wider, *of, counts=counts)
        of = evidence, dataset, "curriculum", "norm_last"
        limits, part = (1 - COMPARABLE, 1 + COMPARABLE), f"{title(dataset)}: NormLast / Uniform"
        yield find(part, "about 1", _against_uniform, *of, within, *limits, counts=counts)


def _welch_row(evidence: Evidence, dataset: str, condition: str, baseline: str, t: float, mark: str) -> Judgement:
    """Compare a row of the table with the paper's.

    A difference that the paper found is reproduced when it is found at the paper's level; that there is none can be
    said only with as many seeds as the paper had. Either is contradicted when the runs say otherwise (a difference of
    the other sign, none with as many seeds, or a clear one where the paper has none), and what they say and what the
    paper says cannot both come from one effect.
    """
    ours, theirs = evidence.areas(dataset, condition, "gmc"), evidence.areas(dataset, condition, baseline)
    samples = list(ours.values()), list(theirs.values())
    test = welch(*samples)
    n = min(len(ours), len(theirs))
    if n < MIN_SEEDS:
        raise TooLittleDataError(too_few(n))
    if test is None:
        means = " against ".join(f"{np.mean(sample):.4g}" for sample in samples)
        return Judgement(Verdict.UNDECIDED, f"areas {means}", n, why_untested(*samples))
    text = f"t = {test.t:.3f}, p {'< 0.001' if test.p < 0.001 else f'= {test.p:.3f}'}"
    size = len(ours) * len(theirs) / (len(ours) + len(theirs))
    verdict, why = _compare(test.t, test.p, n, t, mark, _are_apart(test.t, test.df, size, t))
    needed = PAPER_SEEDS
    if mark in LEVELS and (found := seeds_needed(test.difference, 0.0)) is not None:
        strict = welch(*samples, confidence=1 - LEVELS[mark])
        found = seeds_needed(strict.difference, 0.0, confidence=1 - LEVELS[mark]) if strict else found
        needed = found if found is not None and (test.t < 0) == (t < 0) else PAPER_SEEDS
    return Judgement(verdict, text, n, why, test.difference, needed)


def _are_apart(t: float, df: float, size: float, paper_t: float) -> bool:
    """Whether our statistic and the paper's cannot come from one effect, at 0.05 / 20: one row of 20 can contradict.

    An effect is a difference in units of its deviation over seeds. Each statistic is that effect times the root of its
    sample's size, give or take 1 + statistic^2 / 2 df in its variance; the paper's is uncertain as ours is.
    """
    paper_size, paper_df = PAPER_SEEDS / 2, 2 * PAPER_SEEDS - 2
    effect = (t * math.sqrt(size) + paper_t * math.sqrt(paper_size)) / (size + paper_size)
    scale = size / paper_size
    variance = 1 + effect**2 * size / (2 * df) + scale * (1 + effect**2 * paper_size / (2 * paper_df))
    limit = float(scipy_stats().t.ppf(1 - 0.05 / ROWS / 2, df))
    return abs(t - paper_t * math.sqrt(scale)) > limit * math.sqrt(variance)


def _compare(t: float, p: float, n: int, paper_t: float, mark: str, apart: bool) -> tuple[Verdict, str]:
    if mark not in LEVELS:
        if p < 0.001 and apart:
            return Verdict.CONTRADICTED, "a clear difference"
        if n < PAPER_SEEDS:
            return Verdict.UNDECIDED, f"that there is no difference needs {PAPER_SEEDS} seeds to say, as in the paper"
        if p >= 0.05:
            return Verdict.REPRODUCED, ""
        return Verdict.UNDECIDED, "significant, but not clearly another effect than the paper's"
    same_sign = (t < 0) == (paper_t < 0)
    if p < LEVELS[mark] and same_sign:
        return Verdict.REPRODUCED, ""
    if apart and p < 0.05 and not same_sign:
        return Verdict.CONTRADICTED, "a difference of the other sign"
    if apart and p >= 0.05 and n >= PAPER_SEEDS:
        return Verdict.CONTRADICTED, "no significant difference, and clearly another effect than the paper's"
    return Verdict.UNDECIDED, f"not significant at {LEVELS[mark]}"


def _against_uniform(
    evidence: Evidence, dataset: str, condition: str, method: str, decide: Callable[..., Judgement], *limits: float
) -> Judgement:
    """How does the area of a signal compare with Uniform's, seed by seed?"""
    uniform = evidence.areas(dataset, condition, "uniform")
    estimate = relative_area(evidence.areas(dataset, condition, method), uniform)
    return decide(estimate, *limits, estimate.text(".4f"))


def _unpaired(evidence: Evidence, dataset: str, condition: str, method: str, confidence: float) -> Estimate:
    """The same ratio with runs compared as Welch's test does: what is not worse there must not be worse here."""
    ours, uniform = evidence.areas(dataset, condition, method), evidence.areas(dataset, condition, "uniform")
    return unpaired_ratio(list(ours.values()), list(uniform.values()), confidence)


def _never_worse(evidence: Evidence) -> Judgement:
    """GMC is comparable or better in all conditions, or significantly worse in one."""
    missing = []
    for condition, dataset in CONDITIONS:
        try:
            evidence.areas(dataset, condition, "gmc"), evidence.areas(dataset, condition, "uniform")
        except NoRunsError as error:
            missing.append(str(error))
    if missing:
        raise (NoRunsError if len(missing) == len(CONDITIONS) else TooLittleDataError)(missing[0])
    estimates, strict = (
        [_unpaired(evidence, dataset, condition, "gmc", confidence) for condition, dataset in CONDITIONS]
        for confidence in (0.95, STRICT)
    )
    n = min(e.n for e in estimates)
    text = ", ".join(f"{_name(place)} {e.text('.4f')}" for place, e in enumerate(estimates))
    if n < MIN_SEEDS:
        return Judgement(Verdict.UNDECIDED, text, n, too_few(n))
    worse = [_name(place) for place, e in enumerate(strict) if e.is_above(1)]
    if worse:
        return Judgement(Verdict.CONTRADICTED, text, n, f"worse in {', '.join(worse)}")
    unclear = {place: e for place, e in enumerate(estimates) if not e.is_below(1 + COMPARABLE) or e.is_above(1)}
    if unclear:
        why = f"the interval covers both answers in {', '.join(map(_name, unclear))}"
        needed = [seeds_needed(e, 1.0 if e.is_above(1) else 1 + COMPARABLE) for e in unclear.values()]
        return Judgement(
            Verdict.UNDECIDED, text, n, why, needed=max((k for k in needed if k is not None), default=None)
        )
    return Judgement(Verdict.REPRODUCED, text, n)


def _somewhere_worse(evidence: Evidence, method: str) -> Judgement:
    """A signal is worse than Uniform in some condition, or comparable or better in all."""
    found: dict[int, Estimate] = {}
    missing: list[str] = []
    diverged: list[str] = []
    for place, (condition, dataset) in enumerate(CONDITIONS):
        try:
            found[place] = _unpaired(evidence, dataset, condition, method, STRICT)
        except DivergedError:
            diverged.append(_name(place))
        except TooLittleDataError:
            missing.append(_name(place))
    if len(missing) == len(CONDITIONS):
        raise NoRunsError(f"no finished runs of {title(method)} and Uniform")
    known = {place: e for place, e in found.items() if e.n >= MIN_SEEDS}
    text = ", ".join(f"{_name(place)} {e.text('.4f')}" for place, e in found.items())
    worse = [place for place, e in known.items() if e.is_above(1)]
    if worse:
        text = ", ".join(f"{_name(place)} {known[place].text('.4f')}" for place in worse)
        return Judgement(Verdict.REPRODUCED, text, min(known[place].n for place in worse))
    if len(known) < len(CONDITIONS):
        few = [_name(place) for place in found if place not in known]
        reasons = [f"no runs in {', '.join(missing)}"] if missing else []
        reasons += [f"a run diverged in {', '.join(diverged)}"] if diverged else []
        reasons += [f"fewer than {MIN_SEEDS} seeds in {', '.join(few)}"] if few else []
        n = min((e.n for e in found.values()), default=0)
        return Judgement(Verdict.UNDECIDED, text, n, "; ".join(["not worse elsewhere"] * bool(known) + reasons))
    n = min(e.n for e in known.values())
    if all(e.is_below(1 + COMPARABLE) for e in known.values()):
        return Judgement(Verdict.CONTRADICTED, text, n, "nowhere worse")
    needed = [seeds_needed(e, 1.0, confidence=STRICT) for e in known.values() if e.value > 1]
    least = min((k for k in needed if k is not None), default=None)
    return Judgement(Verdict.UNDECIDED, text, n, "the intervals cover both answers", needed=least)


def _far_apart(evidence: Evidence, dataset: str) -> Judgement:
    """Are the areas of both bad signals above those of both moderate ones? Compared by seed."""
    pairs = [(bad, good) for bad in FAR_WORSE for good in WORSE]
    areas = {name: evidence.areas(dataset, "noise", name) for pair in pairs for name in pair}

    def make(confidence: float) -> list[Estimate]:
        return [_difference(areas[bad], areas[good], confidence) for bad, good in pairs]

    text = ", ".join(f"{title(name)} {np.mean(list(values.values())):.1f}" for name, values in areas.items())
    return all_positive(make, [f"{title(bad)} > {title(good)}" for bad, good in pairs], f"areas {text}")


def _difference(first: Mapping[int, float], second: Mapping[int, float], confidence: float) -> Estimate:
    """The difference of two signals' areas: by pairs with the same seed, or over all if less than two agree."""
    if len(first.keys() & second.keys()) < 2:
        return contrast([list(first.values()), list(second.values())], (1, -1), confidence)
    a, b = paired(first, second)
    return t_interval(a - b, confidence)


def _wider(evidence: Evidence, dataset: str, condition: str, method: str) -> Judgement:
    """Does the area spread more over seeds than Uniform's?"""
    ours = np.array(list(evidence.areas(dataset, condition, method).values()))
    uniform = np.array(list(evidence.areas(dataset, condition, "uniform").values()))
    n = min(len(ours), len(uniform))
    if n < MIN_SEEDS:
        raise TooLittleDataError(too_few(n))
    ratio = float(ours.std(ddof=1) / uniform.std(ddof=1)) if np.ptp(uniform) else float("inf")
    p = float(scipy_stats().levene(ours, uniform, center="median").pvalue) if np.ptp(ours) or np.ptp(uniform) else 1.0
    text = f"{ratio:.2f} times Uniform's, p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}"
    if p >= 0.05:
        needed = _seeds_for_spreads(ratio)
        return Judgement(Verdict.UNDECIDED, text, n, "the spreads cannot be told apart", needed=needed)
    return Judgement(Verdict.REPRODUCED if ratio > 1 else Verdict.CONTRADICTED, text, n)


def _seeds_for_spreads(ratio: float) -> int | None:
    """About how many seeds tell two deviations of this ratio apart: the variance of log(s) is 1 / 2(n - 1) for each."""
    if not 0 < ratio < math.inf:
        return None
    distance = abs(math.log(ratio))
    return min(MOST_SEEDS, 1 + math.ceil((1.96 / distance) ** 2)) if distance else MOST_SEEDS


def _name(place: int) -> str:
    condition, dataset = CONDITIONS[place]
    return f"{title(condition)}+{title(dataset)}"
