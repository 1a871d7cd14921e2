"""PPO as a whole: it learns what can be known, is paid as theory says, and goes on exactly where it was."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from headway.errors import EnvError, MethodError, StateError
from headway.rl import PPO, PPOConfig, make_env
from headway.rl.episodes import Transitions
from headway.rl.learning import Parallel, TrainingBatch
from headway.rl.methods import make_reward
from headway.rl.reward import IntrinsicResult
from tests.rl.chains import Chain, Corridor, Target, together

SMALL = PPOConfig(rollout_steps=16, minibatch_size=32, epochs=2, channels=(4,), hidden=(8,))


def doorkey(method: str = "ppo", config: PPOConfig = SMALL, seed: int = 0, **options: Any) -> PPO:
    env = make_env("MiniGrid-DoorKey-5x5-v0", num_envs=4, noise="door", seed=seed)
    reward = make_reward(method, env.single_observation_space, env.single_action_space, seed=seed)
    return PPO(env, config, reward, seed=seed, **options)


def iterate(ppo: PPO, times: int) -> list[dict[str, float]]:
    rows = [ppo.iterate() for _ in range(times)]
    assert None not in rows
    return [row for row in rows if row is not None]


# It learns.


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_corridor_is_walked_and_its_values_are_known(mode: AutoresetMode) -> None:
    """Walking right pays 1 after 4 steps: V = gamma^3, gamma^2, gamma, 1 along the way."""
    config = PPOConfig(
        rollout_steps=32,
        minibatch_size=128,
        hidden=(32,),
        gamma=0.8,
        policy_learning_rate=5e-3,
        value_learning_rate=1e-2,
        entropy_weight=0.001,
    )
    ppo = PPO(together(lambda number: Corridor(), 8, mode), config, seed=1)
    rows = iterate(ppo, 25)
    assert rows[0]["episode_length"] > 8 or math.isnan(rows[0]["episode_length"])
    assert rows[-1]["episode_return"] == 1
    assert rows[-1]["episode_length"] < 4.5
    assert rows[-1]["explained_variance"] > 0.9
    values = ppo.agent.values(torch.eye(5))[:4, 0].tolist()
    assert values == pytest.approx([0.8**3, 0.8**2, 0.8, 1.0], abs=0.05)


@pytest.mark.slow
def test_continuous_actions_find_their_target() -> None:
    config = PPOConfig(rollout_steps=16, minibatch_size=64, hidden=(16,), policy_learning_rate=1e-2, entropy_weight=0.0)
    ppo = PPO(together(lambda number: Target(), 16), config, seed=0)
    rows = iterate(ppo, 40)
    assert rows[0]["episode_return"] < -0.4
    assert rows[-1]["episode_return"] > -0.1
    best = ppo.agent.policy.choose(np.ones((1, 1), np.float32))
    assert best[0] == pytest.approx([0.5, -0.3], abs=0.15)


def test_a_reward_that_nobody_gives_outside_is_learned_from_inside() -> None:
    """Paid for standing in the corridor's leftmost place, the agent stays there."""

    class Homely:
        predictor = None

        def rewards_and_update(self, batch: Transitions) -> IntrinsicResult:
            return IntrinsicResult(batch.next_obs[:, 0].float(), {})

    config = PPOConfig(
        rollout_steps=32,
        minibatch_size=128,
        hidden=(32,),
        policy_learning_rate=5e-3,
        intrinsic_scale=1.0,
        normalise_intrinsic=False,
        extrinsic_scale=0.0,
        gamma=0.9,
    )
    ppo = PPO(together(lambda number: Corridor(), 8), config, Homely(), seed=0)  # type: ignore[arg-type]
    rows = iterate(ppo, 15)
    assert rows[-1]["intrinsic_mean"] > 0.8 > rows[0]["intrinsic_mean"]
    assert rows[-1]["extrinsic_mean"] == 0


# It is paid as theory says.


class Paid:
    """Pays a known amount for each transition."""

    def __init__(self, amounts: np.ndarray) -> None:
        self.amounts = amounts

    def rewards_and_update(self, batch: Transitions) -> IntrinsicResult:
        return IntrinsicResult(torch.from_numpy(self.amounts[: len(batch)]), {"score_mean": 0.0})


def batch_of(reward: Any, mode: AutoresetMode) -> tuple[TrainingBatch, PPO]:
    """What an agent would learn from its first rollout."""
    config = PPOConfig(
        rollout_steps=20,
        normalise_advantages="none",
        gamma=0.9,
        gae_lambda=0.7,
        intrinsic_scale=0.5,
        normalise_intrinsic=False,
    )
    ppo = PPO(together(lambda number: Chain(number, 3 + number), 2, mode), config, reward, seed=0)
    kept: list[TrainingBatch] = []
    learn = ppo._learn

    def keep(batch: TrainingBatch, should_stop: Any) -> Any:
        kept.append(batch)
        return learn(batch, should_stop)

    ppo._learn = keep  # type: ignore[method-assign]
    ppo.iterate()
    return kept[0], ppo


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_known_intrinsic_reward_changes_the_advantages_by_what_theory_says(mode: AutoresetMode) -> None:
    """By 0.5 times the sum of (0.9 * 0.7)^k r_{t+k} over the rest of the episode, all the way to the update."""
    amounts = np.random.default_rng(0).random(40).astype(np.float32)
    without, _ = batch_of(None, mode)
    with_, _ = batch_of(Paid(amounts), mode)
    assert torch.equal(with_.where, without.where)
    seen = without.frames[without.where]  # [number, episode, time]
    order = [tuple(row) for row in seen.int().tolist()]
    paid = dict(zip(order, amounts.tolist(), strict=False))
    for at, (number, episode, time) in enumerate(order):
        rest = range(time, 3 + number)
        expected = sum(0.63 ** (t - time) * 0.5 * paid.get((number, episode, t), 0.0) for t in rest)
        change = float(with_.advantages[at] - without.advantages[at])
        assert change == pytest.approx(expected, abs=1e-5)
        assert float(with_.returns[at, 0] - without.returns[at, 0]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("over", ["rollout", "minibatch", "none"])
def test_advantages_are_normalised_over_what_is_said(over: Any) -> None:
    config = PPOConfig(rollout_steps=20, normalise_advantages=over, minibatch_size=13)
    ppo = PPO(together(lambda number: Chain(number, 3), 2), config, seed=0)
    kept: list[TrainingBatch] = []
    learn = ppo._learn
    ppo._learn = lambda batch, stop: kept.append(batch) or learn(batch, stop)  # type: ignore[method-assign]
    ppo.iterate()
    advantages = kept[0].advantages.double()
    is_standard = abs(float(advantages.mean())) < 1e-6 and abs(float(advantages.std()) - 1) < 1e-5
    assert is_standard == (over == "rollout")
    assert [len(part) for part in kept[0].minibatches] == 4 * [13, 13, 13, 1]


def test_extrinsic_rewards_are_scaled_once() -> None:
    config = PPOConfig(rollout_steps=12, extrinsic_scale=10.0)
    ppo = PPO(together(lambda number: Chain(number, 3), 2), config, seed=0)
    (row,) = iterate(ppo, 1)
    assert row["episode_return"] == 10 * (1 + 2 + 3)
    assert row["episode_length"] == 3
    assert row["extrinsic_mean"] == pytest.approx(10 * 2)
    assert row["episodes"] == 8
    assert row["env_steps"] == 24
    assert row["intrinsic_mean"] == row["intrinsic_std"] == 0


def test_intrinsic_rewards_can_be_normalised() -> None:
    config = PPOConfig(rollout_steps=40, centre_intrinsic=False, intrinsic_scale=0.5)
    amounts = 1000 * np.random.default_rng(0).random(80).astype(np.float32)
    ppo = PPO(together(lambda number: Chain(number, 3), 2), config, Paid(amounts), seed=0)  # type: ignore[arg-type]
    (row,) = iterate(ppo, 1)
    sums, history = np.zeros(2), []
    for pair in amounts.reshape(40, 2):
        sums = 0.99 * sums + pair
        history.append(sums)
    assert row["intrinsic_mean"] == pytest.approx(0.5 * amounts.mean() / np.std(history), rel=1e-5)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_constant_intrinsic_reward_is_worth_nothing(mode: AutoresetMode) -> None:
    ppo = PPO(together(lambda number: Chain(number, 3), 2, mode), PPOConfig(rollout_steps=20), seed=0)
    paid = PPO(
        together(lambda number: Chain(number, 3), 2, mode),
        PPOConfig(rollout_steps=20),
        Paid(np.full(40, 0.7, np.float32)),  # type: ignore[arg-type]
        seed=0,
    )
    for row, other in zip(iterate(ppo, 2), iterate(paid, 2), strict=True):
        assert other["intrinsic_mean"] == other["intrinsic_std"] == 0
        assert row["policy_loss"] == other["policy_loss"]


def test_a_warm_up_fills_the_statistics_before_anything_is_paid() -> None:
    config = PPOConfig(**{**vars(SMALL), "warm_up_steps": 30})
    ppo = doorkey("rnd", config)
    ppo.iterate()
    assert ppo.env_steps == 4 * 16
    assert float(ppo.reward.predictor.normaliser.moments.count) == 4 * (30 + 16)
    ppo.iterate()
    assert float(ppo.reward.predictor.normaliser.moments.count) == 4 * (30 + 2 * 16)
    with pytest.raises(MethodError, match="warm_up_steps: expected a number of at least 0, got -1"):
        PPOConfig(warm_up_steps=-1)


# It goes on exactly where it was.


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ppo", "forward", "icm", "rnd", "gmc", "icm+gmc", "rnd+gmc"])
def test_saved_and_loaded_it_ends_bit_for_bit_as_it_would_have(method: str) -> None:
    config = PPOConfig(**{**vars(SMALL), "normalise_intrinsic": True, "value_heads": 2})
    whole = doorkey(method, config)
    first = iterate(whole, 2)
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    expected = iterate(whole, 2)
    parts = doorkey(method, config)
    parts.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    assert parts.env_steps == first[-1]["env_steps"]
    assert repr(iterate(parts, 2)) == repr(expected)
    assert equal(parts.state_dict(), whole.state_dict())


def test_stopped_in_the_midst_it_can_go_back() -> None:
    whole, parts = doorkey("icm+gmc"), doorkey("icm+gmc")
    expected = iterate(whole, 2)
    iterate(parts, 1)
    for patience in (3, 17, 20):  # while it acts, and while it learns
        before = copy.deepcopy(parts.state_dict())
        asked = iter(range(10**6))
        assert parts.iterate(lambda asked=asked, patience=patience: next(asked) >= patience) is None
        parts.load_state_dict(before)
    assert repr(iterate(parts, 1)) == repr(expected[1:])
    assert equal(parts.state_dict(), whole.state_dict())


def test_the_number_of_threads_changes_no_number() -> None:
    one, two = doorkey("icm+gmc"), doorkey("icm+gmc", threads=2)
    assert repr(iterate(one, 2)) == repr(iterate(two, 2))
    assert equal(one.state_dict(), two.state_dict())
    two.close()


def test_the_seed_decides_everything_and_the_global_generators_nothing() -> None:
    torch.manual_seed(5)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = iterate(doorkey("icm+gmc"), 1)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert repr(iterate(doorkey("icm+gmc"), 1)) == repr(first)
    assert repr(iterate(doorkey("icm+gmc", seed=1), 1)) != repr(first)


def test_a_state_that_does_not_fit() -> None:
    with pytest.raises(StateError, match="expected a state without a reward, got the contrary"):
        doorkey("ppo").load_state_dict(doorkey("gmc").state_dict())
    with pytest.raises(StateError, match="got 2"):
        doorkey().load_state_dict({"schema": 2})
    corridor = PPO(together(lambda number: Corridor(), 2), SMALL)
    with pytest.raises(StateError, match="an environment with state_dict"):
        corridor.state_dict()


# What it says, and what it refuses.


def test_in_a_rollout_a_single_environment_asks_the_policy_once_for_what_it_sees_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ppo = PPO(make_env("MiniGrid-DoorKey-5x5-v0", noise="none", noise_channel=True), SMALL)
    asked: list[bytes] = []
    act = ppo.agent.policy.act
    monkeypatch.setattr(ppo.agent.policy, "act", lambda given: (asked.append(given.tobytes()), act(given))[1])
    iterate(ppo, 1)
    first = len(asked)
    assert first == len(set(asked)) < SMALL.rollout_steps
    iterate(ppo, 1)
    assert set(asked[:first]) & set(asked[first:])  # the policy has changed, so it is asked again


def test_a_policy_follows_whoever_trains_it() -> None:
    ppo = PPO(make_env("MiniGrid-DoorKey-5x5-v0"), SMALL)
    policy, observations = ppo.agent.policy, ppo.episodes.obs
    before = policy.act(observations)
    optimizer = torch.optim.SGD(policy.parameters(), 1.0)
    policy.network(policy.read(observations))[0, 0].backward()
    optimizer.step()
    assert policy.act(observations)[0, 0] < before[0, 0]


def test_phases_are_marked_in_their_order() -> None:
    marks: list[str] = []
    doorkey("gmc").iterate(mark=marks.append)
    assert marks == ["act", "pay and value", "estimate", "learn"]


def test_metrics_of_the_method_come_along() -> None:
    (row,) = iterate(doorkey("icm+gmc"), 1)
    names = "policy_loss value_loss entropy clip_fraction explained_variance approx_kl predictor_loss forward_loss"
    assert set(names.split()) <= row.keys()
    assert 0 <= row["noise_time_share"] <= 1
    assert {"inverse_loss", "score_mean", "score_std"} <= row.keys()


def test_actions_are_the_most_likely_ones_or_drawn() -> None:
    policy = doorkey().agent.policy
    observations = np.zeros((50, 5, 5, 4), np.float32)
    assert len(set(policy.choose(observations).tolist())) == 1
    assert len(set(policy.choose(observations, torch.Generator().manual_seed(0)).tolist())) > 1


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_single_numbers_are_refused_with_a_way_out_for_every_mode(mode: AutoresetMode) -> None:
    def lakes(*wrappers: Any) -> Any:
        def make() -> Any:
            env = gymnasium.make("FrozenLake-v1")
            return wrappers[0](env) if wrappers else env

        return SyncVectorEnv([make, make], autoreset_mode=mode)

    with pytest.raises(EnvError, match=r"single numbers \(Discrete\(16\)\).*each environment in gymnasium.wrap"):
        PPO(lakes(), SMALL)
    assert iterate(PPO(lakes(gymnasium.wrappers.FlattenObservation), SMALL), 1)[0]["env_steps"] == 32


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(EnvError, match="got Corridor"):
        PPO(Corridor())
    with pytest.raises(MethodError, match="expected 'mlp'"):
        PPO(together(lambda number: Corridor(), 2), PPOConfig(network="cnn"))
    with pytest.raises(MethodError, match=r"threads: .*got 0"):
        PPO(together(lambda number: Corridor(), 2), SMALL, threads=0)
    with pytest.raises(MethodError, match="got 'icm'"):
        PPO(together(lambda number: Corridor(), 2), SMALL, "icm")
    with pytest.raises(MethodError, match="got 1"):
        PPO(together(lambda number: Corridor(), 2, AutoresetMode.NEXT_STEP), PPOConfig(rollout_steps=1))


@pytest.mark.parametrize("threads", [1, 3])
def test_parallel_work_gives_results_in_order_and_pass_errors_on(threads: int) -> None:
    parallel = Parallel(threads)
    assert parallel.run(*(lambda number=number: number**2 for number in range(5))) == [0, 1, 4, 9, 16]

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        parallel.run(fail, lambda: 1)
    parallel.close()
    parallel.close()
