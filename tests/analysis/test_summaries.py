from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headway.analysis.stats import t_interval
from headway.analysis.summaries import (
    auc,
    average_loss,
    band,
    bands,
    blocks,
    column,
    drawn_peaks,
    epochs,
    final_return,
    group_losses,
    group_shares,
    group_shares_per_arm,
    head,
    loss_spread,
    paid_in_noise,
    pay_per_step,
    peak_epochs,
    pull_of_noise,
    return_curve,
    reward_steps,
    share_fluctuation,
    smooth,
    tail,
)
from headway.runs import State
from tests.analysis.made import controlled, exploration, made
from tests.analysis.stores import controlled_spec

TEN = np.arange(10.0)


def test_the_average_loss_is_weighted_by_the_test_counts() -> None:
    run = controlled([[1.0, 2.0, 3.0, 4.0]], counts=[[1, 1, 1, 7]])
    assert average_loss(run) == pytest.approx([(1 + 2 + 3 + 28) / 10])
    assert auc(run) == pytest.approx(3.4)


def test_equal_weights_if_the_protocol_says_so() -> None:
    run = controlled([[1.0, 2.0, 3.0, 4.0]], counts=[[1, 1, 1, 7]], auc_weights="equal")
    assert average_loss(run) == pytest.approx([2.5])


@pytest.mark.parametrize("weights", ["test-count", "equal"])
def test_an_arm_that_was_not_tested_has_no_weight(weights: str) -> None:
    run = controlled([[1.0, np.nan, 3.0, np.nan]], counts=[[5, 0, 5, 0]], auc_weights=weights)
    assert average_loss(run) == pytest.approx([2.0])


def test_the_area_is_the_sum_over_epochs() -> None:
    run = controlled(np.full((100, 4), 0.5))
    assert auc(run) == pytest.approx(50)


def test_long_curves_are_averaged_in_blocks() -> None:
    losses = np.repeat(np.arange(1.0, 501)[:, None], 10, axis=1)
    run = controlled(losses, condition="curriculum")
    assert average_loss(run) == pytest.approx(np.arange(3.0, 400, 5))  # 400 of 500 epochs, in blocks of 5
    assert epochs(run) == pytest.approx(np.arange(3.0, 400, 5))
    assert auc(run) == pytest.approx(sum(range(1, 401)) / 5)


def test_a_curve_of_100_points_is_left_as_it_is() -> None:
    run = controlled(np.ones((100, 4)))
    assert len(average_loss(run)) == 100
    assert len(average_loss(controlled(np.ones((101, 4))))) == 21


def test_the_text_uses_no_blocks() -> None:
    run = controlled(np.ones((400, 10)), condition="curriculum", protocol="paper")
    assert auc(run) == pytest.approx(400)


def test_an_older_run_without_the_fields() -> None:
    spec = controlled_spec(epochs=150)
    bare = type(spec)(experiment="controlled", condition="noise", method="gmc", seed=0, params=spec.params)
    run = made(bare, test_loss=np.ones((150, 4)), test_count=np.ones((150, 4)))
    assert auc(run) == pytest.approx(150)


def test_blocks_leave_out_what_is_missing() -> None:
    values = np.array([1.0, 3.0, np.nan, 5.0, np.nan, np.nan, 7.0])
    np.testing.assert_array_equal(blocks(values, 2, skip_missing=True), [2, 5, np.nan, 7])
    both = blocks(np.stack([values, values + 1], 1), 2, skip_missing=True)
    np.testing.assert_array_equal(both[:, 1], [3, 6, np.nan, 8])
    np.testing.assert_array_equal(blocks(values, 2), [2, np.nan, np.nan, 7])
    np.testing.assert_array_equal(blocks(np.array([1.0, np.inf, 2.0, 4.0]), 2, skip_missing=True), [np.inf, 3])
    assert blocks(np.array([1, 2, 3, 4]), 2).tolist() == [1.5, 3.5]
    assert blocks(np.empty(0), 2).shape == (0,)


def test_losses_of_groups_of_classes() -> None:
    run = controlled([TEN], counts=[[1, 3, 1, 1, 1, 1, 1, 1, 1, 1]], condition="curriculum")
    assert group_losses(run) == pytest.approx(np.array([[0, (3 * 1 + 2) / 4, 4, 7.5]]))


def test_losses_of_groups_under_noise() -> None:
    assert group_losses(controlled([[4.0, 3.0, 2.0, 1.0]])) == pytest.approx(np.array([[4, 3, 2, 1]]))


def test_shares_of_draws() -> None:
    draws = [[10, 5, 15, 10, 10, 10, 10, 10, 10, 10]]
    run = controlled([TEN], draws=draws, condition="curriculum")
    assert group_shares(run) == pytest.approx(np.array([[0.1, 0.2, 0.3, 0.4]]))
    assert group_shares_per_arm(run) == pytest.approx(np.full((1, 4), 0.1))
    assert group_shares(controlled([[1.0] * 4], draws=[[1, 2, 3, 4]])) == pytest.approx(
        np.array([[0.1, 0.2, 0.3, 0.4]])
    )


def test_the_spread_of_the_losses() -> None:
    # deviations of 1, 1, 1, 1 around 2 and of 0
    assert loss_spread(controlled([[1.0, 3.0, 1.0, 3.0], [2.0] * 4])) == pytest.approx(0.5)


def test_fluctuation() -> None:
    steady = controlled(np.ones((4, 4)), draws=[[1, 1, 1, 1]] * 4)
    restless = controlled(np.ones((4, 4)), draws=[[1, 0, 0, 1], [0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 0, 1]])
    assert share_fluctuation(steady) == 0
    # two groups change by -1/2, +1/2, -1/2 in turn, whose variance is 2/9; the other two do not
    assert share_fluctuation(restless) == pytest.approx(2 * (2 / 9) / 4)


def test_smoothing_by_hand() -> None:
    values = np.array([0.0, 3.0, 6.0, 3.0, 0.0, 0.0])
    np.testing.assert_allclose(smooth(values, 0.5), [1.5, 3, 4, 3, 1, 0])
    np.testing.assert_allclose(smooth(np.stack([values, 2 * values], 1), 0.5)[:, 1], 2 * smooth(values, 0.5))
    np.testing.assert_allclose(smooth(values, 0.01), values)


def test_peaks() -> None:
    time = np.arange(100)[:, None]
    draws = (10_000 * np.exp(-(((time - np.array([10, 30, 50, 70])) / 12.0) ** 2)) + 5000).astype(int)
    runs = [controlled(np.ones((100, 4)), draws=draws + shift, seed=shift) for shift in range(2)]
    assert abs(peak_epochs(runs) - [11, 31, 51, 71]).max() <= 6  # shares of the sum, so that peaks push each other
    assert (np.diff(peak_epochs(runs)) > 0).all()
    with pytest.raises(ValueError, match=r"expected finished runs of one length, got \[50, 100\]"):
        peak_epochs([runs[0], controlled(np.ones((50, 4)))])


def test_the_peak_after_a_fall() -> None:
    """Visits that are highest at the start, fall, and come back a little."""
    first = np.interp(np.arange(100), [0, 25, 60, 99], [5000, 1000, 3600, 3200])
    draws = np.stack([first, *[np.full(100, 4000)] * 3], axis=1).astype(int)
    run = controlled(np.ones((100, 4)), draws=draws)
    assert peak_epochs([run])[0] == 1
    assert abs(peak_epochs([run], after_fall=[0])[0] - 61) <= 2
    assert np.isnan(drawn_peaks([run])[0]), "at the start there is no peak"
    assert drawn_peaks([run], after_fall=[0])[0] == 61


def test_a_drawn_peak_is_where_the_curve_is_highest() -> None:
    """A steep rise and a slow fall, which smoothing moves; the second curve still rises at its end."""
    time = np.arange(200)
    steep = np.where(time < 50, time, 50 - (time - 50) / 3).clip(0) * 100 + 1000
    draws = np.stack([steep, 1000 + 20 * time, *[np.full(200, 3000)] * 2], axis=1).astype(int)
    run = controlled(np.ones((200, 4)), draws=draws, curve_block=1)
    shares = group_shares_per_arm(run)[:, 0]
    assert drawn_peaks([run])[0] == shares.argmax() + 1
    assert np.isnan(drawn_peaks([run])[1])


def test_in_blocks_losses_and_counts_are_averaged_before_they_are_weighted() -> None:
    """Two epochs of a block of 5, for each arm (2 + 4) / 2 and so on; by epochs it would be another number."""
    losses, counts = np.ones((105, 4)), np.full((105, 4), 10)
    losses[:5, 0], counts[:5, 0] = [1, 2, 3, 4, 5], [30, 20, 10, 20, 20]
    run = controlled(losses, counts)
    assert average_loss(run)[0] == pytest.approx((3 * 20 + 1 * 30) / 50)
    by_epochs = np.mean([(loss * n + 30) / (n + 30) for loss, n in zip(losses[:5, 0], counts[:5, 0], strict=True)])
    assert average_loss(run)[0] != pytest.approx(by_epochs, rel=1e-3)
    assert group_losses(run)[0].tolist() == [3, 1, 1, 1]
    assert len(average_loss(run)) == 21


def test_rewards_in_blocks_of_ten_rollouts() -> None:
    returns = np.concatenate([[np.nan] * 10, [np.nan], np.arange(1.0, 10), [7.0, 9.0]])
    run = exploration(returns)
    np.testing.assert_array_equal(10 * return_curve(run), [np.nan, 5, 8])
    assert reward_steps(run) == pytest.approx([2048 * 5.5, 2048 * 15.5, 2048 * 21.5])


def test_bands_follow_the_protocols_deviation() -> None:
    runs = [exploration(np.full(20, level), seed=seed) for seed, level in enumerate((2.0, 4.0, 6.0))]
    found = band(runs, return_curve, reward_steps)
    assert 10 * found.high[0] - 4 == pytest.approx(
        4.968276 * np.sqrt(2 / 3), abs=1e-5
    )  # of the population, as released


def test_reward_in_the_noise_counts_by_what_was_paid() -> None:
    run = exploration([1.0] * 3)
    run.columns["noise_reward_share"] = np.array([0.1, 0.9, np.nan])
    run.columns["intrinsic_mean"] = np.array([9.0, 1.0, 0.0])
    assert paid_in_noise(run) == pytest.approx(0.18)
    run.columns["noise_reward_share"] = np.full(3, np.nan)
    assert math.isnan(paid_in_noise(run))


def test_the_final_return() -> None:
    """Logged returns have the protocol's factor of 10."""
    assert final_return(exploration([*[0.0] * 18, 3.0, 5.0])) == pytest.approx(0.4)
    assert final_return(exploration([*[0.0] * 18, np.nan, 5.0])) == pytest.approx(0.5)


def test_ends_of_curves() -> None:
    assert tail(np.arange(100)).tolist() == list(range(90, 100))
    assert tail(np.arange(3)).tolist() == [2]
    assert head(np.arange(100)).tolist() == list(range(10))
    assert tail(np.arange(10), 0.5).tolist() == [5, 6, 7, 8, 9]


def test_a_band_is_a_t_interval_at_every_point() -> None:
    rng = np.random.default_rng(0)
    runs = [controlled(rng.random((6, 4)), seed=seed) for seed in range(4)]
    found = band(runs, average_loss)
    curves = np.array([average_loss(run) for run in runs])
    assert found.n == 4
    assert found.x.tolist() == [1, 2, 3, 4, 5, 6]
    for point in range(6):
        expected = t_interval(curves[:, point])
        assert (found.mean[point], found.low[point], found.high[point]) == pytest.approx(
            (expected.value, expected.low, expected.high)
        )


def test_bands_of_several_curves() -> None:
    runs = [controlled([[1.0, 2.0, 3.0, 4.0]], seed=0), controlled([[3.0, 4.0, 5.0, 6.0]], seed=1)]
    assert [float(each.mean[0]) for each in bands(runs, group_losses)] == [2, 3, 4, 5]


def test_runs_that_are_not_finished_count_as_far_as_they_go() -> None:
    whole = controlled(np.full((4, 4), 2.0), seed=0)
    part = made(
        controlled_spec(epochs=4, seed=1), State.RUNNING, test_loss=np.zeros((2, 4)), test_count=np.ones((2, 4), int)
    )
    found = band([part, whole], average_loss)
    assert found.mean.tolist() == [1, 1, 2, 2]
    assert np.isinf(found.high[2:]).all()
    assert len(found.x) == 4


def test_a_column_as_it_was_logged() -> None:
    run = made(controlled_spec(epochs=3), policy_entropy=[1.0, 2.0, 3.0])
    assert band([run], column("policy_entropy")).mean.tolist() == [1, 2, 3]


def test_no_runs() -> None:
    with pytest.raises(ValueError, match="expected at least one run"):
        band([], average_loss)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_run_that_diverged_for_some_epochs_has_no_area(bad: float) -> None:
    losses = np.ones((500, 10))
    losses[10:12] = bad
    run = controlled(losses, dataset="mnist", condition="curriculum")  # in blocks of 5
    assert np.isnan(auc(run))
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(average_loss(run))), [2])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_run_that_diverged_is_not_left_out_of_a_band(bad: float) -> None:
    losses = np.ones((20, 4))
    losses[15:] = bad
    found = band([controlled(losses, seed=0), *(controlled(np.ones((20, 4)), seed=s) for s in (1, 2))], average_loss)
    assert found.mean[:15] == pytest.approx(1)
    assert np.isnan(found.mean[15:]).all()
    assert (found.low[15:] == -np.inf).all()
    assert (found.high[15:] == np.inf).all()


def test_the_points_of_a_run_under_way_are_those_that_it_will_have() -> None:
    line = np.repeat(np.arange(1.0, 501)[:, None], 10, 1)
    whole = controlled(line, dataset="mnist", condition="curriculum", seed=0)
    other = controlled(line, dataset="mnist", condition="curriculum", seed=1)
    part = replace(other, state=State.RUNNING, columns={name: v[:93] for name, v in other.columns.items()})
    np.testing.assert_array_equal(epochs(part), np.arange(3.0, 90, 5))  # the last three of 93 make no block yet
    found = band([whole, part], average_loss)
    np.testing.assert_array_equal(found.mean, found.x)  # the loss is the epoch, so any other epoch would show
    np.testing.assert_array_equal(found.high[:18], found.mean[:18])
    first = replace(part, columns={name: v[:3] for name, v in part.columns.items()})
    assert epochs(first).tolist() == [2]


def test_an_epoch_without_draws_has_no_shares() -> None:
    draws = np.ones((6, 4), dtype=int)
    draws[2] = 0
    shares = group_shares(controlled(np.ones((6, 4)), draws=draws))
    assert np.isnan(shares).all(1).tolist() == [False, False, True, False, False, False]


def test_the_peaks_of_runs_with_epochs_that_do_not_count() -> None:
    rng = np.random.default_rng(0)
    draws = rng.integers(50, 100, (500, 10))
    runs = [
        controlled(np.ones((n, 10)), draws=draws[:n], dataset="mnist", condition="curriculum", seed=n)
        for n in (400, 500)
    ]
    np.testing.assert_array_equal(peak_epochs(runs), peak_epochs(runs[:1]))


def test_the_pull_of_noise_is_a_ratio_per_step() -> None:
    """Half of the pay for a fifth of the steps: 0.5 / 0.2 against 0.5 / 0.8 is four times as much for a step."""
    run = exploration([1.0] * 4)
    run.columns["noise_reward_share"] = np.array([0.5, 0.5, np.nan, 1.0])
    run.columns["noise_time_share"] = np.array([0.2, 0.2, 0.3, 1.0])
    run.columns["intrinsic_mean"] = np.array([4.0, 1.0, np.nan, 1.0])
    assert pull_of_noise(run) == pytest.approx(4)
    assert pay_per_step(run) == 1
    run.columns["noise_reward_share"] = np.full(4, np.nan)
    assert math.isnan(pull_of_noise(run))
