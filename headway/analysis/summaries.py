"""What runs say before any statistics: curves, shares of draws, areas and rewards, one function each.

Figures, claims and reports all take their numbers from here, so that they cannot disagree. The fields of a run's own
protocol decide how its curve is made: `epochs_used`, `curve_block`, `auc_weights`, `interval_ddof`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from headway.analysis.rundata import Array, RunData, planned_epochs
from headway.analysis.stats import CONFIDENCE, t_bounds
from headway.study.protocols.names import GROUPS

LONG_CURVE = 100  #: Curves with more points than this are averaged in blocks
ROLLOUT_BLOCK = 10  #: Rollouts whose rewards are averaged to one point of a curve, if the protocol does not say
LAST_PART = 0.1  #: The part of a curve, at its end, that counts as the end
RESAMPLED = 10_000  #: Samples that a bootstrap of means draws
SMOOTHED = 0.05  #: Width of the moving average that finds peaks, as a part of the curve

FALLS_AT_FIRST: Mapping[str, tuple[int, ...]] = {"curiosity": (0,)}
"""Groups whose visits fall at the start of a curriculum: the peak after that counts, as the paper's text says."""

Curve: TypeAlias = Callable[[RunData], Array]
Key = TypeVar("Key")


@dataclass(frozen=True)
class Band:
    """A curve averaged over seeds, with an interval at each point."""

    x: Array  #: epochs or environment steps [points]
    mean: Array  #: the mean over seeds [points]
    low: Array  #: lower ends of the t-intervals [points]; infinite where one seed is left
    high: Array  #: upper ends [points]
    n: int  #: seeds
    #: the curves that were averaged [seeds, points], NaN where one has ended; None if they are not known
    singles: Array | None = None

    @classmethod
    def of(cls, x: Array, mean: Array, n: int = 1) -> Band:
        """A curve without intervals."""
        return cls(x, mean, np.full(len(x), -np.inf), np.full(len(x), np.inf), n)


# Controlled runs.


def arms_of_groups(run: RunData) -> tuple[tuple[int, ...], ...]:
    """The arms of each of the four groups: an arm is a group in the noise condition, and a class otherwise."""
    return tuple((group,) for group in range(len(GROUPS))) if run.condition == "noise" else GROUPS


def used(run: RunData, values: Array) -> Array:
    """The part of a curve that counts, in blocks if it is long: values [epochs, ...] -> [points, ...].

    The first `epochs_used` epochs count. If that is still more than 100 epochs they are averaged in blocks of
    `curve_block`. How long the run was meant to be decides, not how far it has come: the points of a run under way
    are those that it will have in the end.
    """
    length = int(_field(run, "epochs_used", len(values)))
    planned = min(planned_epochs(run) or len(values), length)
    values = values[:length]
    block = int(_field(run, "curve_block", 1))
    return blocks(_full_blocks(run, values, block), block) if planned > LONG_CURVE else values


def blocks(values: Array, size: int, skip_missing: bool = False) -> Array:
    """Means of blocks of values: [n, ...] -> [ceil(n / size), ...]; a last block that is not full has fewer to average.

    `skip_missing` leaves NaN out, so that only a block of nothing else is NaN. Right where NaN says that there was
    nothing to measure, such as a rollout in which no episode ended; a loss that is NaN has diverged.
    """
    if size <= 1 or not len(values):
        return values
    starts = np.arange(0, len(values), size)
    there = ~np.isnan(values) if skip_missing else np.ones(values.shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        sums = np.add.reduceat(np.where(there, values, 0.0), starts, axis=0)
        return np.asarray(sums / np.add.reduceat(there, starts, axis=0, dtype=np.int64))


def _full_blocks(run: RunData, values: Array, size: int) -> Array:
    """Leave out the last block of a run under way until it is full, unless it is the first."""
    if run.finished or size <= 1 or len(values) < size:
        return values
    return values[: len(values) // size * size]


def epochs(run: RunData) -> Array:
    """The epochs of the points of a curve [points]; for a block, the middle of it."""
    return used(run, np.arange(1.0, run.rows + 1))


def group_losses(run: RunData) -> Array:
    """Test loss of each group [points, 4]: the mean over its arms, weighted by their test counts."""
    losses, counts = _tested(run)
    columns = [_weighted(losses[:, arms], counts[:, arms]) for arms in map(list, arms_of_groups(run))]
    return np.stack(columns, 1)


def average_loss(run: RunData) -> Array:
    """Test loss over all arms [points], weighted as the protocol's `auc_weights` says: by test count or equally."""
    losses, counts = _tested(run)
    if _field(run, "auc_weights", "test-count") == "equal":
        counts = counts > 0
    return _weighted(losses, counts)


def _tested(run: RunData) -> tuple[Array, Array]:
    """Test loss and test count of each arm at the points of the curve, each [points, arms].

    In a block both are averaged for each arm by itself, the loss over the epochs in which the arm was tested, before
    anything is weighted: so does the released code.
    """
    losses, counts = run.columns["test_loss"].astype(np.float64), run.columns["test_count"].astype(np.float64)
    was_tested = counts > 0
    tested = used(run, was_tested.astype(np.float64))
    with np.errstate(invalid="ignore"):
        means = used(run, np.where(was_tested, losses, 0.0)) / tested
    return means, used(run, counts)


def auc(run: RunData) -> float:
    """The area under the test-loss curve: the sum of `average_loss` over its points."""
    return float(average_loss(run).sum())


def group_shares(run: RunData) -> Array:
    """Share of the epoch's draws in each group [points, 4], adding up to 1; NaN for an epoch without draws."""
    return used(run, _draw_shares(run))


def group_shares_per_arm(run: RunData) -> Array:
    """Share of the epoch's draws of a class of each group [points, 4]: that of the group divided by its arms."""
    return used(run, _draw_shares(run) / np.array([len(arms) for arms in arms_of_groups(run)]))


def loss_spread(run: RunData, first: int = 0) -> float:
    """Standard deviation of the test loss over the groups from `first` on, averaged over the points of the curve."""
    return float(group_losses(run)[:, first:].std(1).mean())


def score_sizes(runs: Sequence[RunData]) -> list[float]:
    """How large scores are: the mean over arms, and the median over epochs, since they fall steeply.

    One number for each run that has logged them.
    """
    logged = [used(run, run.columns["score_mean"]) for run in runs if "score_mean" in run.columns]
    return [float(np.median(np.nanmean(scores, axis=1))) for scores in logged]


def distance_to_uniform(run: RunData) -> float:
    """Half the sum over groups of the distance of their share to the uniform one, averaged over the curve."""
    arms = np.array([len(arms) for arms in arms_of_groups(run)])
    return float(abs(group_shares(run) - arms / arms.sum()).sum(1).mean() / 2)


def share_fluctuation(run: RunData) -> float:
    """Variance of the change of a group's share from one epoch to the next, averaged over the groups."""
    shares = _draw_shares(run)[: int(_field(run, "epochs_used", run.rows))]
    return float(np.diff(shares, axis=0).var(0).mean())


def peak_epochs(runs: Sequence[RunData], after_fall: Collection[int] = ()) -> Array:
    """The epoch at which the visits of each group peak [4], on the smoothed mean curve of runs of one length.

    The groups `after_fall` are those whose visits fall at the start, and whose peak is the one after that.
    """
    shares = np.array([smooth(group_shares_per_arm(run)) for run in _equally_long(runs)])
    return weighted_peaks(shares, epochs(runs[0]), np.full(len(runs), 1 / len(runs)), after_fall)


def drawn_peaks(runs: Sequence[RunData], after_fall: Collection[int] = ()) -> Array:
    """The epochs [4] at which the mean curves, as a figure draws them, peak; NaN for a curve without a peak.

    Smoothing finds the peak and moves it: it is taken back to the highest point near by. A curve that is highest at
    its start or at its end has no peak.
    """
    places = epochs(runs[0])
    mean = np.mean([group_shares_per_arm(run) for run in _equally_long(runs)], axis=0)
    found = np.full(mean.shape[1], np.nan)
    half = max(1, round(SMOOTHED * len(mean)))
    for group, peak in enumerate(peak_epochs(runs, after_fall)):
        if not np.isfinite(peak):
            continue
        middle = int(np.argmin(abs(places - peak)))
        first = max(0, middle - half)
        top = first + int(mean[first : middle + half + 1, group].argmax())
        if 0 < top < len(mean) - half:
            found[group] = places[top]
    return found


def weighted_peaks(smoothed: Array, places: Array, weights: Array, after_fall: Collection[int] = ()) -> Array:
    """Where the weighted mean of smoothed curves peaks: [runs, points, k], [points], [runs] -> [k].

    NaN where the mean is not known everywhere. Smoothing and averaging may be exchanged, so this is the peak of the
    smoothed mean. Of the curves `after_fall` it is looked for after the lowest point of the first half.
    """
    mean = np.tensordot(weights, smoothed, 1)
    tops = mean.argmax(0)
    for curve in after_fall:
        lowest = int(mean[: len(mean) // 2 + 1, curve].argmin())
        tops[curve] = lowest + int(mean[lowest:, curve].argmax())
    return np.where(np.isfinite(mean).all(0), places[tops], np.nan)


def smooth(values: Array, part: float = SMOOTHED) -> Array:
    """Centred moving average over a part of the curve [points, ...]; at the ends the window is cut off."""
    width = 2 * (max(1, round(part * len(values))) // 2) + 1
    half = width // 2
    sums = np.cumsum(np.concatenate([np.zeros((1, *values.shape[1:])), values]), axis=0)
    low = np.maximum(np.arange(len(values)) - half, 0)
    high = np.minimum(np.arange(len(values)) + half + 1, len(values))
    lengths = (high - low).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray((sums[high] - sums[low]) / lengths)


def column(name: str) -> Curve:
    """A curve that is a column of the run as it was logged, such as "policy_entropy"."""
    return lambda run: used(run, run.columns[name])


# Exploration runs.


def rollout_curve(run: RunData, column: str) -> Array:
    """A column of an exploration run [points], in blocks of `curve_block` rollouts; rollouts with NaN are left out."""
    size = int(_field(run, "curve_block", ROLLOUT_BLOCK))
    return blocks(_full_blocks(run, run.columns[column].astype(np.float64), size), size, skip_missing=True)


def return_curve(run: RunData) -> Array:
    """Mean episode return in the environment's own unit [points]; NaN before the first episode has ended."""
    return rollout_curve(run, "episode_return") / _reward_scale(run)


def reward_steps(run: RunData) -> Array:
    """Environment steps at the points of `return_curve` [points]."""
    return rollout_curve(run, "env_steps")


def final_return(run: RunData) -> float:
    """Mean episode return over the last tenth of the rollouts, in the environment's own unit.

    NaN if no episode had ended by then.
    """
    last = tail(run.columns["episode_return"] / _reward_scale(run))
    return float(blocks(last, len(last), skip_missing=True)[0]) if len(last) > 1 else float(last[0])


def _reward_scale(run: RunData) -> float:
    """The factor on the environment's rewards, which logged returns have."""
    return float(_field(run, "extrinsic_scale", 1.0)) or 1.0


def paid_in_noise(run: RunData) -> float:
    """The share of all intrinsic reward of a run that came while the noise was on; NaN if there was none.

    Rollouts count by their reward: a signal that fades gives most of it early.
    """
    shares, paid = run.columns["noise_reward_share"], run.columns["intrinsic_mean"]
    known = np.isfinite(shares) & np.isfinite(paid)
    total = float(paid[known].sum())
    return float((shares * paid)[known].sum()) / total if total else float("nan")


def pull_of_noise(run: RunData) -> float:
    """The reward of a step with the noise on over that of one without it, median over rollouts.

    Rollouts without steps of both kinds, or without reward, say nothing; NaN if none says anything.
    """
    paid, time = run.columns["noise_reward_share"], run.columns["noise_time_share"]
    known = (paid > 0) & (paid < 1) & (time > 0) & (time < 1)
    ratios = paid[known] / (1 - paid[known]) * (1 - time[known]) / time[known]
    return float(np.median(ratios)) if len(ratios) else float("nan")


def pay_per_step(run: RunData) -> float:
    """Intrinsic reward of a step as it was learned from, median over rollouts: signals that fade give most early."""
    paid = run.columns["intrinsic_mean"]
    known = paid[np.isfinite(paid)]
    return float(np.median(known)) if len(known) else float("nan")


# Both.


def tail(values: Array, part: float = LAST_PART) -> Array:
    """The last part of a curve, at least one point: [points, ...] -> [some, ...]."""
    return values[-max(1, round(part * len(values))) :]


def head(values: Array, part: float = LAST_PART) -> Array:
    """The first part of a curve, at least one point: [points, ...] -> [some, ...]."""
    return values[: max(1, round(part * len(values)))]


def band(runs: Sequence[RunData], curve: Curve, x: Curve = epochs, confidence: float = CONFIDENCE) -> Band:
    """A curve averaged over runs of one group and method.

    Runs that are not finished count as far as they go. Where one has diverged the mean is unknown: NaN, with an
    infinite interval. In a run of rollouts NaN says that no episode ended, and the mean is that of the others. `curve`
    gives a run's curve [points], such as `average_loss`, and `x` the positions of its points, such as `reward_steps`.
    """
    return bands(runs, lambda run: curve(run)[:, None], x, confidence)[0]


def bands(runs: Sequence[RunData], curve: Curve, x: Curve = epochs, confidence: float = CONFIDENCE) -> tuple[Band, ...]:
    """Several curves at once: as `band`, for a function that gives [points, k], such as `group_losses`."""
    if not runs:
        raise ValueError("expected at least one run, got none")
    found = [curve(run) for run in runs]
    longest = max(range(len(runs)), key=lambda number: len(found[number]))
    padded = np.full((len(runs), *found[longest].shape), np.nan)
    for row, run, values in zip(padded, runs, found, strict=True):
        has_gaps = "env_steps" in run.columns
        row[: len(values)] = values if has_gaps else np.where(np.isfinite(values), values, np.inf)
    mean, low, high = t_bounds(padded, confidence, int(_field(runs[0], "interval_ddof", 1)))
    places = x(runs[longest])
    singles = np.where(np.isfinite(padded), padded, np.nan)
    return tuple(
        Band(places, mean[:, k], low[:, k], high[:, k], len(runs), singles[:, :, k]) for k in range(mean.shape[1])
    )


def _weighted(losses: Array, counts: Array) -> Array:
    """Means over arms: losses and weights [epochs, arms] -> [epochs]; an arm without weight may have NaN.

    A mean that is not finite is NaN: the run has diverged, or nothing was tested.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.where(counts > 0, losses * counts, 0.0).sum(1) / counts.sum(1)
    return np.where(np.isfinite(means), means, np.nan)


def _draw_shares(run: RunData) -> Array:
    """Share of each group in the draws of each epoch [epochs, 4]; NaN for an epoch without draws."""
    counts = run.columns["train_count"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        shares = counts / counts.sum(1, keepdims=True)
    return np.stack([shares[:, list(arms)].sum(1) for arms in arms_of_groups(run)], 1)


def _field(run: RunData, name: str, default: Any) -> Any:
    """A field of the run's protocol; the default if an older run does not have it."""
    value = run.spec.protocol.get(name)
    return default if value is None else value


def _equally_long(runs: Sequence[RunData]) -> Sequence[RunData]:
    lengths = {len(epochs(run)) for run in runs}
    if len(lengths) != 1:
        raise ValueError(f"expected finished runs of one length, got {sorted(lengths)}")
    return runs


def resampled_means(samples: Mapping[Key, Array], rng: np.random.Generator) -> dict[Key, Array]:
    """Means of each sample [n] drawn with replacement, [resamples]; each has a stream of its own."""
    streams = rng.spawn(len(samples))
    drawn = {
        key: s.integers(0, len(x), (RESAMPLED, len(x))) for s, (key, x) in zip(streams, samples.items(), strict=True)
    }
    return {key: np.asarray(x[drawn[key]].mean(1)) for key, x in samples.items()}
