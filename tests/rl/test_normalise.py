from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headway.errors import MethodError, StateError
from headway.rl.normalise import ObservationNormaliser, RewardNormaliser, RunningMoments


def test_moments_by_hand() -> None:
    moments = RunningMoments()
    assert moments.is_empty
    assert float(moments.variance) == 1
    moments.update(torch.tensor([1.0, 3.0]))
    assert (float(moments.count), float(moments.mean), float(moments.variance)) == (2, 2, 1)
    moments.update(torch.tensor([8.0]))  # 1, 3, 8: mean 4, deviations 9 + 1 + 16 = 26
    assert (float(moments.count), float(moments.mean)) == (3, 4)
    assert float(moments.variance) == pytest.approx(26 / 3)
    assert float(moments.deviation) == pytest.approx(math.sqrt(26 / 3))


def test_moments_do_not_depend_on_how_values_are_split() -> None:
    values = 1e4 + np.random.default_rng(0).normal(size=(200, 3, 2))  # far from zero: squares would cancel
    moments = RunningMoments((3, 2))
    for part in np.split(values, [1, 7, 7, 150]):
        moments.update(torch.from_numpy(part))
    np.testing.assert_allclose(moments.mean, values.mean(0), rtol=1e-14)
    np.testing.assert_allclose(moments.variance, values.var(0), rtol=1e-11)


def test_moments_refuse_another_shape() -> None:
    with pytest.raises(MethodError, match=r"got \[2\]"):
        RunningMoments((3,)).update(torch.zeros(4, 2))


def test_observations_are_centred_scaled_and_clipped() -> None:
    normaliser = ObservationNormaliser((2,), clip=1.5)
    batch = torch.tensor([[0.0, 7.0], [2.0, 7.0]])
    alone = normaliser(batch)  # nothing seen: by its own statistics, which are not kept
    torch.testing.assert_close(alone, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    assert normaliser.moments.is_empty
    normaliser.update(batch)
    torch.testing.assert_close(normaliser(batch), alone)
    # a constant entry is centred only; what is far off is cut
    torch.testing.assert_close(normaliser(torch.tensor([[9.0, 8.0]])), torch.tensor([[1.5, 1.0]]))


def test_rewards_are_divided_by_the_deviation_of_their_discounted_sums() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.exponential(size=(40, 3))
    normaliser = RewardNormaliser(3, gamma=0.9, centre=False)
    sums, history = np.zeros(3), []
    for rollout in np.split(rewards, 4):
        for row in rollout:
            sums = 0.9 * sums + row
            history.append(sums)
        normaliser.update(torch.from_numpy(rollout))
        expected = rollout / np.std(history)
        np.testing.assert_allclose(normaliser(torch.from_numpy(rollout)), expected, rtol=1e-12)


def test_steps_without_a_transition_do_not_count() -> None:
    rewards = torch.tensor([[1.0, 1.0], [5.0, 2.0], [3.0, 4.0]])
    valid = torch.tensor([[True, True], [False, True], [True, True]])
    normaliser = RewardNormaliser(2, gamma=0.5, centre=False)
    normaliser.update(rewards, valid)
    # first environment 1, then 3 + 0.5; second 1, 2.5, 5.25
    assert float(normaliser.moments.deviation) == pytest.approx(np.std([1, 3.5, 1, 2.5, 5.25]))
    assert normaliser.sums.tolist() == [3.5, 5.25]


def test_a_reward_keeps_its_type_and_limits() -> None:
    normaliser = RewardNormaliser(1, clip=2.0, centre=False)
    assert normaliser(torch.tensor([0.5])).tolist() == [0.5]  # nothing known yet
    normaliser.update(torch.tensor([[0.0], [1.0]]))
    scaled = normaliser(torch.tensor([10.0, 0.5]))
    assert scaled.dtype == torch.float32
    assert scaled.tolist() == [2.0, 1.0]  # sums 0 and 1: deviation 1/2


def test_rewards_of_another_shape() -> None:
    with pytest.raises(MethodError, match=r"got \[4\]"):
        RewardNormaliser(3).update(torch.zeros(4))
    with pytest.raises(MethodError, match=r"discount.*got 2"):
        RewardNormaliser(3, gamma=2)


@pytest.mark.parametrize("steps", [1, 7, 128], ids="{} steps at a time".format)
@pytest.mark.parametrize("gamma", [0.0, 0.99, 1.0])
def test_the_discounted_income_of_living_is_zero(steps: int, gamma: float) -> None:
    """A reward that never changes pays nothing, in environments that differ and however it is split."""
    rewards = torch.tensor([0.3, 7.0, 1e-6]).expand(256, 3)
    normaliser = RewardNormaliser(3, gamma)
    for part in rewards.split(steps):
        normaliser.update(part)
        assert (normaliser(part) == 0).all()


def test_one_deviation_at_every_step_is_a_return_of_one() -> None:
    rewards = 5 + np.random.default_rng(0).exponential(size=(600, 2)) + np.array([0.0, 3.0])
    normaliser = RewardNormaliser(2, gamma=0.9)
    normaliser.update(torch.from_numpy(rewards))
    centred = rewards - rewards.mean(0)
    np.testing.assert_allclose(normaliser.means, rewards.mean(0), rtol=1e-12)
    paid = normaliser(torch.from_numpy(rewards))
    np.testing.assert_allclose(paid, 0.1 * centred / centred.std(), rtol=1e-9, atol=1e-9)
    income = normaliser(torch.from_numpy(rewards.mean(0) + centred.std()))  # one deviation above the mean
    assert float((income * 0.9 ** torch.arange(500)[:, None]).sum(0)[0]) == pytest.approx(1)
    samples = torch.tensor([[5.0], [6.0]])  # of no environment in particular
    torch.testing.assert_close(normaliser(samples), (0.1 * (samples - rewards.mean()) / centred.std()).float())


def test_a_rollout_is_centred_by_its_own_mean_over_all_environments() -> None:
    """However the rewards rise, a rollout pays nothing on average; what an environment gained lately stays its own."""
    generator = torch.Generator().manual_seed(0)
    normaliser = RewardNormaliser(2)
    normaliser.update(torch.rand(5000, 2, generator=generator))
    for scale in (1, 30, 1000):
        rollout = scale * torch.rand(256, 2, generator=generator).double()
        rollout[:, 1] += scale
        normaliser.update(rollout)
        paid = normaliser(rollout)
        assert float(paid.mean()) == pytest.approx(0, abs=1e-12)
        assert float(paid[:, 1].mean()) > 5 * float(paid[:, 0].std() / 16)


def test_a_mean_follows_within_its_horizon() -> None:
    normaliser = RewardNormaliser(1, horizon=4)
    normaliser.update(torch.tensor([[1.0], [3.0], [5.0], [7.0]]))
    assert normaliser.means.tolist() == [4.0]
    normaliser.update(torch.tensor([[8.0]]))
    assert normaliser.means.tolist() == [5.0]  # 4 + (8 - 4) / 4
    normaliser.update(torch.tensor([[100.0]]), torch.tensor([[False]]))
    assert normaliser.means.tolist() == [5.0]


def test_zeros_before_the_first_pay_say_nothing() -> None:
    normaliser = RewardNormaliser(2)
    normaliser.update(torch.zeros(50, 2))  # a scorer whose moments are still empty
    assert (normaliser(torch.zeros(50, 2)) == 0).all()
    normaliser.update(torch.full((10, 2), 3.0))
    assert normaliser.means.tolist() == [3.0, 3.0]


def test_another_number_of_environments_starts_from_the_mean() -> None:
    one, two = RewardNormaliser(1), RewardNormaliser(2)
    one.update(torch.tensor([[1.0], [2.0]]))
    two.resume(one.state_dict())
    assert two.means.tolist() == [1.5, 1.5]
    with pytest.raises(StateError, match="with centre=False, got one of another kind"):
        RewardNormaliser(1, centre=False).resume(one.state_dict())
    with pytest.raises(MethodError, match="horizon: expected at least 1 step, got 0"):
        RewardNormaliser(1, horizon=0)


@pytest.mark.parametrize("rollouts", [1, 2])
def test_a_state_resumes_bit_for_bit(rollouts: int) -> None:
    rewards = torch.rand(4, 6, 2, generator=torch.Generator().manual_seed(0))
    whole, first, second = RewardNormaliser(2), RewardNormaliser(2), RewardNormaliser(2)
    for rollout in rewards:
        whole.update(rollout)
    for rollout in rewards[:rollouts]:
        first.update(rollout)
    second.load_state_dict(first.state_dict())
    for rollout in rewards[rollouts:]:
        second.update(rollout)
    assert all(
        torch.equal(a, b) for a, b in zip(whole.state_dict().values(), second.state_dict().values(), strict=True)
    )
