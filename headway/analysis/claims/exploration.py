"""Claims about MiniGrid: in which order the methods end, and what noise at the door costs them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from headway.analysis.claims.evaluation import Evidence, register
from headway.analysis.claims.verdicts import Finding, Judgement, TooLittleDataError, all_positive, find
from headway.analysis.rundata import Array
from headway.analysis.stats import Estimate, contrast
from headway.analysis.summaries import final_return
from headway.study.protocols.names import title

WITHOUT, WITH = "none", "door"
ROBUST, FRAGILE = ("icm+gmc", "gmc"), ("ppo", "icm")
RESAMPLES = 10_000
PROBABLE = "the probability of what the paper has, by bootstrap over seeds"


@register(
    "C14",
    "MiniGrid, no noise: final means in the order PPO, ICM+GMC, ICM, GMC (wide overlap)",
    "mean episode return over the last 10% of steps; differences with 95% intervals; " + PROBABLE,
    is_of_exploration=True,
)
def order_without_noise(evidence: Evidence) -> Iterator[Finding]:
    """Judge C14."""
    order = ("ppo", "icm+gmc", "icm", "gmc")
    for env_id, counts in evidence.environments():
        yield _order(evidence, env_id, WITHOUT, order, counts)


@register(
    "C15",
    "MiniGrid, door noise: ICM+GMC, GMC, PPO, ICM (wide overlap); the drop from C14 is smaller for ICM+GMC and GMC",
    "mean episode return over the last 10% of steps, and the difference to no noise per method; " + PROBABLE,
    is_of_exploration=True,
)
def order_with_noise(evidence: Evidence) -> Iterator[Finding]:
    """Judge C15."""
    for env_id, counts in evidence.environments():
        yield _order(evidence, env_id, WITH, ("icm+gmc", "gmc", "ppo", "icm"), counts)
        for method in ROBUST:
            name = f"{_short(env_id)}: loss of return to the noise, {title(method)}"
            judge = partial(_smaller_drop, evidence, env_id, method)
            yield find(name, "smaller than PPO's and ICM's", judge, counts)


def _order(evidence: Evidence, env_id: str, condition: str, order: Sequence[str], counts: bool) -> Finding:
    paper = " > ".join(map(title, order)) + " (tentative)"
    judge = partial(_in_order, evidence, env_id, condition, order)
    return find(f"{_short(env_id)}: order of the final returns, {title(condition)}", paper, judge, counts)


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
    means_of = {
        method: _resampled_means(values, evidence.rng(), k) for k, (method, values) in enumerate(rewards.items())
    }
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
    means_of = {key: _resampled_means(values, evidence.rng(), k) for k, (key, values) in enumerate(rewards.items())}
    lost = {m: means_of[m, WITHOUT] - means_of[m, WITH] for m in methods}
    chance = np.logical_and.reduce([lost[method] < lost[other] for other in FRAGILE]).mean()
    found = f"{found}; that it loses least has probability {chance:.2f} (0.33 by chance)"
    return all_positive(make, [f"less than {title(other)}" for other in FRAGILE], found)


def _resampled_means(values: Array, rng: np.random.Generator, place: int) -> Array:
    """Means of values [n] drawn with replacement, [resamples]; each place has a stream of its own."""
    drawn = rng.spawn(place + 1)[place].integers(0, len(values), (RESAMPLES, len(values)))
    return np.asarray(values[drawn].mean(1))


def _rewards(evidence: Evidence, env_id: str, condition: str, method: str) -> Array:
    """The final return of each run [n], in the environment's own unit."""
    runs = evidence.exploration(env_id, condition, method)
    rewards = np.array([final_return(run) for run in runs])
    if not np.isfinite(rewards).all():
        raise TooLittleDataError(f"a run of {runs[0].group.title}, {title(method)} ends without an episode")
    return rewards
