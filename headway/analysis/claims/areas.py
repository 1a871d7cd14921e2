"""Claims about who learns faster: areas under the test-loss curve, and returns in MiniGrid with and without noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from headway.analysis.claims.verdicts import (
    MIN_SEEDS,
    MOST_SEEDS,
    BySeed,
    Condition,
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
from headway.analysis.comparison import relative_area
from headway.analysis.rundata import Array
from headway.analysis.stats import Estimate, contrast, scipy_stats, t_interval, unpaired_ratio, welch, why_untested
from headway.analysis.summaries import final_return, resampled_means
from headway.study.protocols.names import title

Decide: TypeAlias = Callable[..., Judgement]

BASELINES = ("uniform", "curiosity", "norm_last", "norm_all", "delta_loss")
FAR_WORSE, WORSE = ("norm_last", "curiosity"), ("norm_all", "delta_loss")
PAPER_SEEDS = 20
COMPARABLE = 0.05  # An area is comparable to Uniform's when it is off by less than this part of it

PAPER_T: Mapping[tuple[str, str], Sequence[tuple[float, str]]] = {
    ("curriculum", "mnist"): ((-0.332, "ns"), (0.483, "ns"), (-2.209, "*"), (-18.880, "**"), (-1.443, "ns")),
    ("curriculum", "cifar10"): ((-0.713, "ns"), (0.581, "ns"), (-1.769, "ns"), (-4.145, "**"), (-22.020, "**")),
    ("noise", "mnist"): ((-6.354, "**"), (-92.667, "**"), (-60.661, "**"), (-34.619, "**"), (-1.678, "ns")),
    ("noise", "cifar10"): ((-13.455, "**"), (-332.082, "**"), (-280.183, "**"), (-57.342, "**"), (-18.242, "**")),
}
"""The paper's Welch table, t of GMC against each of BASELINES with its mark: ** p < 0.001, * p < 0.05."""
CONDITIONS = tuple(PAPER_T)
NOT_WORSE = f"contradicted where it is comparable to Uniform's: the interval reaches 1 and ends below {1 + COMPARABLE}"
STRICT = 1 - 0.05 / len(CONDITIONS)  # Confidence where one condition is enough to decide
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
    for (condition, dataset), row in PAPER_T.items():
        on = Condition(evidence, condition, dataset)
        for baseline, (t, mark) in zip(BASELINES, row, strict=True):
            part = f"{on.title}: GMC against {title(baseline)}"
            yield find(part, f"t = {t} {mark}", _welch_row, on, baseline, t, mark)


@register(
    "C8",
    "only GMC is comparable to or better than Uniform in all four conditions",
    f"AUC relative to Uniform, unpaired as in C7; comparable: the interval reaches 1 and ends below {1 + COMPARABLE}",
)
def _only_gmc(evidence: Evidence) -> Iterator[Finding]:
    everywhere = [Condition(evidence, *each) for each in PAPER_T]
    yield find("GMC, in all four conditions", "comparable or better", _never_worse, everywhere)
    for method in BASELINES[1:]:
        yield find(f"{title(method)}, somewhere", "worse than Uniform", _somewhere_worse, everywhere, method)


@register(
    "C9",
    "noise: NormLast and Curiosity are far worse than Uniform; NormAll and DeltaLoss moderately",
    f"AUC relative to Uniform; far: worse than both of the moderate ones; {NOT_WORSE}",
)
def _worse_under_noise(evidence: Evidence) -> Iterator[Finding]:
    for on in evidence.conditions("noise"):
        for method in (*FAR_WORSE, *WORSE):
            how = "far above 1" if method in FAR_WORSE else "above 1"
            yield on.find(f"{title(method)} / Uniform", how, area_ratio, method, "uniform", worse)
        yield on.find("NormLast and Curiosity against NormAll and DeltaLoss", "both higher than both", _far_apart)


@register(
    "C10",
    "curriculum: NormAll and DeltaLoss have poor AUC and high variance; NormLast about Uniform",
    f"AUC relative to Uniform; spread over seeds against Uniform's by Levene's test; {NOT_WORSE}",
)
def _worse_in_the_curriculum(evidence: Evidence) -> Iterator[Finding]:
    limits = 1 - COMPARABLE, 1 + COMPARABLE
    for on in evidence.conditions("curriculum"):
        for method in WORSE:
            yield on.find(f"{title(method)} / Uniform", "above 1", area_ratio, method, "uniform", worse)
            yield on.find(f"{title(method)}, spread over seeds", "above Uniform's", _wider, method)
        yield on.find("NormLast / Uniform", "about 1", area_ratio, "norm_last", "uniform", within, *limits)


def area_ratio(on: Condition, method: str, other: str, decide: Decide, *limits: float) -> Judgement:
    """How does the area of a signal compare with another's, seed by seed?"""
    estimate = relative_area(on.areas(method), on.areas(other))
    return decide(estimate, *limits, estimate.text(".4f"))


def worse(estimate: Estimate, ours: str) -> Judgement:
    """Is it above 1? Not so where it is comparable, as in C8: the interval reaches 1 and ends below 1 + COMPARABLE."""
    found, ends = above(estimate, 1.0, ours), 1 + COMPARABLE
    if found.verdict is not Verdict.UNDECIDED or estimate.n < MIN_SEEDS or not estimate.is_bounded:
        return found
    if estimate.is_below(ends):
        return replace(found, verdict=Verdict.CONTRADICTED, why="comparable to Uniform's", needed=None)
    limits = (1.0, ends) if estimate.value > 1 else (ends,)
    needed = _known(seeds_needed(estimate, limit) for limit in limits)
    return replace(found, why=f"the interval covers 1 and {ends}", needed=min(needed, default=None))


def _known(numbers: Iterable[int | None]) -> list[int]:
    return [number for number in numbers if number is not None]


def _welch_row(on: Condition, baseline: str, t: float, mark: str) -> Judgement:
    """Compare a row of the table with the paper's.

    A difference that the paper found is reproduced when it is found at the paper's level; that there is none can be
    said only with as many seeds as the paper had. Either is contradicted when the runs say otherwise (a difference of
    the other sign, none with as many seeds, or a clear one where the paper has none), and what they say and what the
    paper says cannot both come from one effect.
    """
    samples = list(on.areas("gmc").values()), list(on.areas(baseline).values())
    test = welch(*samples)
    sizes = len(samples[0]), len(samples[1])
    n = min(sizes)
    if n < MIN_SEEDS:
        raise TooLittleDataError(too_few(n))
    if test is None:
        means = " against ".join(f"{np.mean(sample):.4g}" for sample in samples)
        return Judgement(Verdict.UNDECIDED, f"areas {means}", n, why_untested(*samples))
    size = math.prod(sizes) / sum(sizes)
    verdict, why = _compare(test.t, test.p, n, t, mark, _are_apart(test.t, test.df, size, t))
    needed = PAPER_SEEDS
    if mark in LEVELS and (found := seeds_needed(test.difference, 0.0)) is not None:
        strict = welch(*samples, confidence=1 - LEVELS[mark])
        found = seeds_needed(strict.difference, 0.0, confidence=1 - LEVELS[mark]) if strict else found
        needed = found if found is not None and (test.t < 0) == (t < 0) else PAPER_SEEDS
    return Judgement(verdict, f"t = {test.t:.3f}, {_p_text(test.p)}", n, why, test.difference, needed)


def _p_text(p: float) -> str:
    return f"p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}"


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


def _unpaired(on: Condition, method: str, confidence: float) -> Estimate:
    """The area relative to Uniform's, compared as Welch's test does: what is not worse there must not be worse here."""
    return unpaired_ratio(list(on.areas(method).values()), list(on.areas("uniform").values()), confidence)


def _never_worse(everywhere: Sequence[Condition]) -> Judgement:
    """GMC is comparable or better in all conditions, or significantly worse in one."""
    missing = []
    for on in everywhere:
        try:
            on.areas("gmc"), on.areas("uniform")
        except NoRunsError as error:
            missing.append(str(error))
    if missing:
        raise (NoRunsError if len(missing) == len(everywhere) else TooLittleDataError)(missing[0])
    found, strict = ({on.title: _unpaired(on, "gmc", confidence) for on in everywhere} for confidence in (0.95, STRICT))
    n, text = min(e.n for e in found.values()), _texts(found)
    if n < MIN_SEEDS:
        return Judgement(Verdict.UNDECIDED, text, n, too_few(n))
    if worse := [name for name, e in strict.items() if e.is_above(1)]:
        return Judgement(Verdict.CONTRADICTED, text, n, f"worse in {', '.join(worse)}")
    unclear = {name: e for name, e in found.items() if not e.is_below(1 + COMPARABLE) or e.is_above(1)}
    if not unclear:
        return Judgement(Verdict.REPRODUCED, text, n)
    needed = _known(seeds_needed(e, 1.0 if e.is_above(1) else 1 + COMPARABLE) for e in unclear.values())
    why = f"the interval covers both answers in {', '.join(unclear)}"
    return Judgement(Verdict.UNDECIDED, text, n, why, needed=max(needed, default=None))


def _somewhere_worse(everywhere: Sequence[Condition], method: str) -> Judgement:
    """A signal is worse than Uniform in some condition, or comparable or better in all."""
    found: dict[str, Estimate] = {}
    missing: list[str] = []
    diverged: list[str] = []
    for on in everywhere:
        try:
            found[on.title] = _unpaired(on, method, STRICT)
        except DivergedError:
            diverged.append(on.title)
        except TooLittleDataError:
            missing.append(on.title)
    if len(missing) == len(everywhere):
        raise NoRunsError(f"no finished runs of {title(method)} and Uniform")
    known = {name: e for name, e in found.items() if e.n >= MIN_SEEDS}
    if worse := {name: e for name, e in known.items() if e.is_above(1)}:
        return Judgement(Verdict.REPRODUCED, _texts(worse), min(e.n for e in worse.values()))
    text, n = _texts(found), min((e.n for e in found.values()), default=0)
    if len(known) < len(everywhere):
        few = [name for name in found if name not in known]
        reasons = ["not worse elsewhere"] if known else []
        reasons += [f"no runs in {', '.join(missing)}"] if missing else []
        reasons += [f"a run diverged in {', '.join(diverged)}"] if diverged else []
        reasons += [f"fewer than {MIN_SEEDS} seeds in {', '.join(few)}"] if few else []
        return Judgement(Verdict.UNDECIDED, text, n, "; ".join(reasons))
    if all(e.is_below(1 + COMPARABLE) for e in known.values()):
        return Judgement(Verdict.CONTRADICTED, text, n, "nowhere worse")
    needed = _known(seeds_needed(e, 1.0, confidence=STRICT) for e in known.values() if e.value > 1)
    why = "the intervals cover both answers"
    return Judgement(Verdict.UNDECIDED, text, n, why, needed=min(needed, default=None))


def _texts(found: Mapping[str, Estimate]) -> str:
    return ", ".join(f"{name} {estimate.text('.4f')}" for name, estimate in found.items())


def _far_apart(on: Condition) -> Judgement:
    """Are the areas of both bad signals above those of both moderate ones? Compared by seed."""
    pairs = [(bad, good) for bad in FAR_WORSE for good in WORSE]
    areas = {name: on.areas(name) for pair in pairs for name in pair}

    def make(confidence: float) -> list[Estimate]:
        return [_difference(areas[bad], areas[good], confidence) for bad, good in pairs]

    text = ", ".join(f"{title(name)} {np.mean(list(values.values())):.1f}" for name, values in areas.items())
    return all_positive(make, [f"{title(bad)} > {title(good)}" for bad, good in pairs], f"areas {text}")


def _difference(first: BySeed, second: BySeed, confidence: float) -> Estimate:
    """The difference of two signals' areas: by pairs with the same seed, or over all if less than two agree."""
    if len(first.keys() & second.keys()) < 2:
        return contrast([list(first.values()), list(second.values())], (1, -1), confidence)
    a, b = paired(first, second)
    return t_interval(a - b, confidence)


def _wider(on: Condition, method: str) -> Judgement:
    """Does the area spread more over seeds than Uniform's?"""
    ours, uniform = (np.array(list(on.areas(name).values())) for name in (method, "uniform"))
    n = min(len(ours), len(uniform))
    if n < MIN_SEEDS:
        raise TooLittleDataError(too_few(n))
    ratio = float(ours.std(ddof=1) / uniform.std(ddof=1)) if np.ptp(uniform) else float("inf")
    p = float(scipy_stats().levene(ours, uniform, center="median").pvalue) if np.ptp(ours) or np.ptp(uniform) else 1.0
    text = f"{ratio:.2f} times Uniform's, {_p_text(p)}"
    if p >= 0.05:
        # The variance of log(s) is about 1 / 2(n - 1) for each of the two deviations.
        distance = abs(math.log(ratio)) if 0 < ratio < math.inf else math.nan
        needed = None if math.isnan(distance) else min(MOST_SEEDS, 1 + math.ceil((1.96 / max(distance, 1e-9)) ** 2))
        return Judgement(Verdict.UNDECIDED, text, n, "the spreads cannot be told apart", needed=needed)
    return Judgement(Verdict.REPRODUCED if ratio > 1 else Verdict.CONTRADICTED, text, n)


# Returns in MiniGrid.

WITHOUT, WITH = "none", "door"
ROBUST, FRAGILE = ("icm+gmc", "gmc"), ("ppo", "icm")
PROBABLE = "the probability of what the paper has, by bootstrap over seeds"


@register(
    "C14",
    "MiniGrid, no noise: final means in the order PPO, ICM+GMC, ICM, GMC (wide overlap)",
    "mean episode return over the last 10% of steps; differences with 95% intervals; " + PROBABLE,
    is_of_exploration=True,
)
def _order_without_noise(evidence: Evidence) -> Iterator[Finding]:
    order = ("ppo", "icm+gmc", "icm", "gmc")
    for env_id, counts in evidence.environments():
        yield _order(evidence, env_id, WITHOUT, order, counts)


@register(
    "C15",
    "MiniGrid, door noise: ICM+GMC, GMC, PPO, ICM (wide overlap); the drop from C14 is smaller for ICM+GMC and GMC",
    "mean episode return over the last 10% of steps, and the difference to no noise per method; " + PROBABLE,
    is_of_exploration=True,
)
def _order_with_noise(evidence: Evidence) -> Iterator[Finding]:
    for env_id, counts in evidence.environments():
        yield _order(evidence, env_id, WITH, ("icm+gmc", "gmc", "ppo", "icm"), counts)
        for method in ROBUST:
            part = f"{_short(env_id)}: loss of return to the noise, {title(method)}"
            paper = "smaller than PPO's and ICM's"
            yield find(part, paper, _smaller_drop, evidence, env_id, method, counts=counts)


def _order(evidence: Evidence, env_id: str, condition: str, order: Sequence[str], counts: bool) -> Finding:
    part, paper = f"{_short(env_id)}: order of the final returns, {title(condition)}", " > ".join(map(title, order))
    return find(part, f"{paper} (tentative)", _in_order, evidence, env_id, condition, order, counts=counts)


def _short(env_id: str) -> str:
    """The name of an environment without the library's and the version, such as "DoorKey-8x8"."""
    return env_id.removeprefix("MiniGrid-").removesuffix("-v0")


def _in_order(evidence: Evidence, env_id: str, condition: str, order: Sequence[str]) -> Judgement:
    rewards = {method: _rewards(evidence, env_id, condition, method) for method in order}
    steps = list(pairwise(order))

    def make(confidence: float) -> list[Estimate]:
        return [contrast([rewards[better], rewards[worse]], (1, -1), confidence) for better, worse in steps]

    means = {method: float(values.mean()) for method, values in rewards.items()}
    found = " > ".join(f"{title(m)} {means[m]:.2f}" for m in sorted(means, key=lambda m: -means[m]))
    means_of = resampled_means(rewards, evidence.rng())
    chance = np.logical_and.reduce([means_of[better] > means_of[worse] for better, worse in steps]).mean()
    found = f"{found}; the paper's order has probability {chance:.2f} ({1 / math.factorial(len(order)):.2f} by chance)"
    return all_positive(make, [f"{title(better)} > {title(worse)}" for better, worse in steps], found)


def _smaller_drop(evidence: Evidence, env_id: str, method: str) -> Judgement:
    """Does noise cost this method less than each of the fragile ones?"""
    methods = (method, *FRAGILE)
    rewards = {(m, c): _rewards(evidence, env_id, c, m) for m in methods for c in (WITHOUT, WITH)}

    def make(confidence: float) -> list[Estimate]:
        return [
            contrast([rewards[m, c] for m in (other, method) for c in (WITHOUT, WITH)], (1, -1, -1, 1), confidence)
            for other in FRAGILE
        ]

    drops = {m: float(rewards[m, WITHOUT].mean() - rewards[m, WITH].mean()) for m in methods}
    found = ", ".join(f"{title(m)} {drop:.2f}" for m, drop in drops.items())
    means_of = resampled_means(rewards, evidence.rng())
    lost = {m: means_of[m, WITHOUT] - means_of[m, WITH] for m in methods}
    chance = np.logical_and.reduce([lost[method] < lost[other] for other in FRAGILE]).mean()
    found = f"{found}; that it loses least has probability {chance:.2f} (0.33 by chance)"
    return all_positive(make, [f"less than {title(other)}" for other in FRAGILE], found)


def _rewards(evidence: Evidence, env_id: str, condition: str, method: str) -> Array:
    """The final return of each run [n], in the environment's own unit."""
    runs = evidence.exploration(env_id, condition, method)
    rewards = np.array([final_return(run) for run in runs])
    if not np.isfinite(rewards).all():
        raise TooLittleDataError(f"a run of {runs[0].group.title}, {title(method)} ends without an episode")
    return rewards
