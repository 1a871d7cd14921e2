"""Stable-Baselines3, on-policy: the reward reaches the advantages, and nothing else changes."""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from headway.errors import EnvError, MethodError, StateError
from headway.integrations.sb3 import OnPolicyIntrinsicCallback
from headway.rl.methods import make_reward
from headway.rl.reward import IntrinsicReward
from tests.integrations.sb3_worlds import clocks
from tests.integrations.worlds import FORCES, SMALL, Clock, Known, assert_within_episodes

STEPS = 16


class Look(BaseCallback):
    """Copies the rollout buffer when the rollout is over, before the policy is trained with it."""

    def _on_training_start(self) -> None:
        self.buffers: list[RolloutBuffer] = []
        self.last_dones: list[Any] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.buffers.append(copy.deepcopy(self.model.rollout_buffer))
        self.last_dones.append(np.array(self.locals["dones"]))
        self.logged = dict(self.logger.name_to_value)


def agent(env: Any = None, kind: type = PPO, **options: Any) -> Any:
    settings: dict[str, Any] = {"n_steps": STEPS, "gamma": 0.9, "gae_lambda": 0.8, "seed": 3, "device": "cpu"}
    if kind is PPO:
        settings |= {"batch_size": 8, "n_epochs": 2}
    policy = options.pop("policy", "MlpPolicy")
    return kind(policy, clocks() if env is None else env, **{**settings, **options})


def played(callback: BaseCallback | None, rollouts: int = 1, env: Any = None, **options: Any) -> tuple[Any, Look]:
    model, look = agent(env, **options), Look()
    given = [look] if callback is None else [callback, look]
    model.learn(rollouts * STEPS * model.n_envs, callback=CallbackList(given))
    return model, look


def weights(model: Any) -> list[torch.Tensor]:
    return [value.clone() for value in model.policy.state_dict().values()]


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def discounted(rewards: np.ndarray, ends: np.ndarray, factor: float) -> np.ndarray:
    """The sum over k of factor^k rewards[t + k] up to the end of the episode, each on its own; [T, N]."""
    result = np.zeros(rewards.shape)
    for t, n in np.ndindex(*rewards.shape):
        for k in range(t, len(rewards)):
            result[t, n] += factor ** (k - t) * rewards[k, n]
            if ends[k, n]:
                break
    return result


def ends_of(look: Look, number: int = 0) -> np.ndarray:
    """Where episodes ended in a rollout [T, N]."""
    starts = look.buffers[number].episode_starts
    return np.concatenate([starts[1:], look.last_dones[number][None]]).astype(bool)


# The reward arrives


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_a_known_reward_changes_advantages_and_returns_by_its_discounted_sum(kind: type) -> None:
    _, plain = played(None, kind=kind)
    reward = Known()
    _, paid = played(OnPolicyIntrinsicCallback(reward, coefficient=0.25, normalise=False), kind=kind)
    before, after = plain.buffers[0], paid.buffers[0]
    own = 0.25 * reward.of(reward.shown[0].obs, reward.shown[0].next_obs).double().numpy().reshape(STEPS, 2)
    assert np.array_equal(before.values, after.values)
    np.testing.assert_allclose(after.rewards - before.rewards, own, rtol=0, atol=2e-6)
    theory = discounted(own, ends_of(plain), 0.9 * 0.8)
    np.testing.assert_allclose(after.advantages - before.advantages, theory, rtol=2e-6, atol=5e-6)
    np.testing.assert_allclose(after.returns - before.returns, theory, rtol=2e-6, atol=5e-6)


def test_the_policy_is_trained_with_it() -> None:
    plain, _ = played(None)
    paid, _ = played(OnPolicyIntrinsicCallback(Known(), coefficient=1.0, normalise=False))
    assert not same(plain, paid)


def test_the_coefficient_may_follow_the_progress() -> None:
    reward = Known()
    callback = OnPolicyIntrinsicCallback(reward, coefficient=lambda left: 10 * left, normalise=False)
    _, plain = played(None, rollouts=1)
    _, paid = played(callback, rollouts=2)
    own = 10 * reward.of(reward.shown[0].obs, reward.shown[0].next_obs).numpy().reshape(STEPS, 2)
    np.testing.assert_allclose(paid.buffers[0].rewards - plain.buffers[0].rewards, own, rtol=1e-6, atol=1e-5)
    assert callback._coefficient() == 0  # at the end


@pytest.mark.parametrize("centre", [True, False])
def test_rewards_are_normalised_as_the_documentation_says(centre: bool) -> None:
    reward = Known()
    _, plain = played(None)
    _, paid = played(OnPolicyIntrinsicCallback(reward, coefficient=0.5, centre=centre))
    raw = reward.of(reward.shown[0].obs, reward.shown[0].next_obs).double().numpy().reshape(STEPS, 2)
    if centre:
        raw = raw - raw.mean(0)  # the first rollout: each environment with its own mean
        theory = 0.5 * (1 - 0.9) * raw / raw.std()
    else:
        sums, now = [], np.zeros(2)
        for row in raw:
            now = 0.9 * now + row
            sums.append(now)
        theory = 0.5 * raw / np.std(sums)
    np.testing.assert_allclose(paid.buffers[0].rewards - plain.buffers[0].rewards, theory, rtol=1e-5, atol=2e-6)


# Episode ends


def test_transitions_stay_within_their_episode() -> None:
    reward = Known()
    played(OnPolicyIntrinsicCallback(reward), rollouts=3)
    assert len(reward.shown) == 3
    for batch in reward.shown:
        assert len(batch) == 2 * STEPS
        assert_within_episodes(batch)
        assert batch.envs is not None
        assert batch.ended is not None
        assert torch.equal(batch.envs.float(), batch.obs[:, 0])  # environments show their number
        for env in range(2):
            own = batch[batch.envs == env]
            assert torch.equal(own.ended[:-1], own.obs[1:, 1] != own.obs[:-1, 1])  # the next one is of another episode


def test_the_bootstrap_of_truncated_episodes_stays() -> None:
    _, plain = played(None)
    _, paid = played(OnPolicyIntrinsicCallback(Known(), coefficient=0.0))
    assert np.array_equal(plain.buffers[0].rewards, paid.buffers[0].rewards)
    assert (plain.buffers[0].rewards != 1).sum() >= 2  # the first episodes are cut off, with a value added
    assert ends_of(plain).sum() > 2 * (plain.buffers[0].rewards != 1).sum() - 1  # others ended by themselves


def test_an_environment_that_hides_the_last_observation_is_refused() -> None:
    class Hiding(DummyVecEnv):
        def step_wait(self) -> Any:
            obs, rewards, dones, infos = super().step_wait()
            return obs, rewards, dones, [{k: v for k, v in i.items() if k != "terminal_observation"} for i in infos]

    with pytest.raises(EnvError, match=r"expected infos\[0\]\['terminal_observation'\]"):
        played(OnPolicyIntrinsicCallback(Known()), env=Hiding([Clock]))


# Nothing else changes


@pytest.mark.parametrize("kind", [PPO, A2C])
@pytest.mark.parametrize("method", ["icm+gmc", "rnd"])
def test_paid_with_nothing_the_agent_is_the_plain_one_to_the_bit(kind: type, method: str) -> None:
    plain, _ = played(None, rollouts=4, kind=kind)
    paid, _ = played(OnPolicyIntrinsicCallback(method, coefficient=0.0, config=SMALL), rollouts=4, kind=kind)
    assert same(plain, paid)


def test_the_tasks_statistics_are_untouched() -> None:
    model, _ = played(OnPolicyIntrinsicCallback(Known(), coefficient=100.0), rollouts=3)
    episodes = list(model.ep_info_buffer)
    assert len(episodes) > 10
    assert all(episode["r"] == episode["l"] for episode in episodes)  # one for each step


def test_metrics_are_logged() -> None:
    _, look = played(OnPolicyIntrinsicCallback("icm+gmc", config=SMALL, coefficient=0.3), rollouts=2)
    assert {"intrinsic/reward_mean", "intrinsic/scaled_mean", "intrinsic/predictor_loss"} <= set(look.logged)
    assert look.logged["intrinsic/coefficient"] == 0.3
    assert look.logged["intrinsic/reward_mean"] > 0


def test_the_page_names_what_is_logged() -> None:
    _, look = played(OnPolicyIntrinsicCallback("icm+gmc", config=SMALL), rollouts=2)
    page = (Path(__file__).parents[2] / "docs" / "howto" / "sb3.md").read_text("utf-8")
    logged = {name.removeprefix("intrinsic/") for name in look.logged if name.startswith("intrinsic/")}
    assert {name for name in logged if f"`{name}`" not in page} == {"forward_loss", "inverse_loss"}  # "others"


def test_the_buffer_is_left_as_it_was() -> None:
    model, _ = played(OnPolicyIntrinsicCallback(Known()))
    assert "compute_returns_and_advantage" not in vars(model.rollout_buffer)


def test_training_that_was_broken_off_pays_nothing_later() -> None:
    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls == 5:
                raise KeyboardInterrupt
            return True

    model, reward = agent(), Known()
    with pytest.raises(KeyboardInterrupt):
        model.learn(STEPS * 2, callback=CallbackList([OnPolicyIntrinsicCallback(reward), Stop()]))
    model.learn(STEPS * 2)
    assert not reward.shown
    assert "compute_returns_and_advantage" not in vars(model.rollout_buffer)


# Spaces


def test_continuous_actions_are_those_that_were_carried_out() -> None:
    env, reward = clocks(1, actions=FORCES), Known(FORCES)
    played(OnPolicyIntrinsicCallback(reward), env=env)
    carried_out = np.stack(env.envs[0].unwrapped.actions)
    assert np.abs(carried_out).max() == 0.5  # some were cut
    assert np.array_equal(reward.shown[0].actions.numpy(), carried_out)


class Rows(gymnasium.Env[Any, Any]):
    """Three observations of some space, again and again."""

    def __init__(self, space: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = space, actions
        space.seed(0)
        self.shown = [space.sample() for _ in range(3)]
        self.now = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.now = 0
        return self.shown[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.now += 1
        return self.shown[self.now], 0.0, self.now == 2, False, {}


SPACES = [
    pytest.param(spaces.Discrete(5), spaces.Discrete(2), id="discrete"),
    pytest.param(spaces.MultiDiscrete([3, 4]), spaces.MultiDiscrete([2, 3]), id="multi-discrete"),
    pytest.param(spaces.MultiBinary(4), spaces.MultiBinary(2), id="multi-binary"),
    pytest.param(spaces.Box(0, 255, (8, 8, 3), np.uint8), FORCES, id="image"),
]


@pytest.mark.parametrize(("space", "actions"), SPACES)
def test_all_array_spaces_work(space: Any, actions: Any) -> None:
    env = DummyVecEnv([lambda: Rows(space, actions)])
    model, look = played(OnPolicyIntrinsicCallback("icm", config=None), env=env)
    assert np.abs(look.buffers[0].rewards).max() > 0
    assert np.isfinite(look.buffers[0].advantages).all()
    if len(space.shape) == 3:
        assert model.intrinsic_reward.callback.reward.config.observation_scale == 1 / 255
        assert model.intrinsic_reward.callback.reward.config.channels_first  # Stable-Baselines3 transposes images


@pytest.mark.parametrize(
    ("space", "scale"),
    [
        (spaces.Box(0, 1, (3, 40, 40), np.float32), 1.0),
        (spaces.Box(0, 1, (6, 40, 44), np.float32), 1.0),
        (spaces.Box(0, 255, (40, 40, 3), np.uint8), 1 / 255),
    ],
)
def test_images_are_convolved_as_the_policy_does(space: Any, scale: float) -> None:
    env = DummyVecEnv([lambda: Rows(space, FORCES)])
    options = {"normalize_images": scale != 1}
    model = PPO("CnnPolicy", env, n_steps=8, batch_size=8, n_epochs=1, device="cpu", policy_kwargs=options)
    callback = OnPolicyIntrinsicCallback("icm")
    model.learn(8, callback=callback)
    own = next(each for each in callback.reward.predictor.modules() if isinstance(each, torch.nn.Conv2d))
    assert own.in_channels == model.policy.features_extractor.cnn[0].in_channels
    assert callback.reward.config.observation_scale == scale


@pytest.mark.parametrize("shape", [(7, 7, 20), (7, 9, 20)])
def test_grids_of_a_policy_without_convolutions_have_their_channels_last(shape: tuple[int, ...]) -> None:
    env = DummyVecEnv([lambda: Rows(spaces.Box(0, 1, shape, np.float32), FORCES)])
    callback = OnPolicyIntrinsicCallback("icm")
    played(callback, env=env)
    assert not callback.reward.config.channels_first


def test_normalised_observations_are_seen_as_the_policy_sees_them() -> None:
    reward = Known()
    _, look = played(OnPolicyIntrinsicCallback(reward), env=VecNormalize(clocks(), norm_reward=False))
    batch = reward.shown[0]
    assert np.array_equal(batch.obs.numpy(), look.buffers[0].observations.reshape(-1, 3))
    assert float(batch.next_obs[:, 2].abs().max()) < 4  # raw steps go up to 5, normalised ones do not


def test_normalised_whole_numbers_are_refused_and_floats_taken() -> None:
    """The rollout buffer has the type of the space, which VecNormalize leaves as it is."""

    def made(*types: type) -> VecNormalize:
        env: Any = Clock()
        for each in types:
            env = gymnasium.wrappers.DtypeObservation(env, each)
        return VecNormalize(DummyVecEnv([lambda: env]))

    with pytest.raises(EnvError, match=r"got one of int16, .*DtypeObservation\(env, np.float32\)"):
        played(OnPolicyIntrinsicCallback(Known()), env=made(np.int16))
    _, look = played(OnPolicyIntrinsicCallback(Known()), env=made(np.int16, np.float32))
    assert (look.buffers[0].observations < 0).any()


def test_of_observations_in_parts_the_bonus_sees_one() -> None:
    parts = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (3,))})
    env = DummyVecEnv([lambda: Rows(parts, FORCES)])
    with pytest.raises(EnvError, match="key: expected one of a, b, got None"):
        played(OnPolicyIntrinsicCallback("icm"), env=env, policy="MultiInputPolicy")
    callback = OnPolicyIntrinsicCallback("rnd", key="b", config=SMALL)
    seen = []
    transitions = callback._transitions
    callback._transitions = lambda: seen.append(transitions()) or seen[-1]  # type: ignore[method-assign, func-returns-value]
    _, look = played(callback, env=env, policy="MultiInputPolicy")
    kept = look.buffers[0].observations["b"]
    assert torch.equal(seen[0].obs, torch.from_numpy(kept.reshape(-1, 3)))
    within = ~seen[0].ended[:-1]
    assert torch.equal(seen[0].next_obs[:-1][within], seen[0].obs[1:][within])


def test_bytes_may_stand_beside_a_part_that_is_normalised() -> None:
    parts = spaces.Dict({"a": spaces.Box(0, 255, (4,), np.uint8), "b": spaces.Box(0, 1, (3,))})
    env = VecNormalize(DummyVecEnv([lambda: Rows(parts, FORCES)]), norm_obs_keys=["b"])
    _, look = played(OnPolicyIntrinsicCallback("rnd", key="a", config=SMALL), env=env, policy="MultiInputPolicy")
    assert look.buffers


# Saved and loaded


class Everything:
    """Random numbers and environments at one moment: what Stable-Baselines3 does not save."""

    def __init__(self, env: Any) -> None:
        self.env = copy.deepcopy(env)
        self.numpy, self.torch = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002

    def load(self, path: Path) -> Any:
        """A saved agent, in a world as it was at that moment."""
        model = PPO.load(path, copy.deepcopy(self.env), device="cpu", force_reset=False)
        np.random.set_state(self.numpy)  # noqa: NPY002
        torch.set_rng_state(self.torch)
        return model


@pytest.mark.parametrize("method", ["icm+gmc", "rnd+gmc", "forward"])
def test_saved_and_resumed_equals_uninterrupted(method: str, tmp_path: Path) -> None:
    half = 3 * STEPS * 2
    whole = agent()
    whole.learn(half, callback=OnPolicyIntrinsicCallback(method, coefficient=2.0, config=SMALL))
    whole.save(tmp_path / "agent")
    moment = Everything(whole.get_env())
    whole.learn(half, callback=whole.intrinsic_reward.callback, reset_num_timesteps=False)

    once = agent()
    once.learn(2 * half, callback=OnPolicyIntrinsicCallback(method, coefficient=2.0, config=SMALL))
    assert same(whole, once)

    resumed = moment.load(tmp_path / "agent")
    callback = OnPolicyIntrinsicCallback.carried_by(resumed)
    resumed.learn(half, callback=callback, reset_num_timesteps=False)
    assert same(whole, resumed)
    for one, other in zip(
        whole.intrinsic_reward.callback.reward.predictor.parameters(),
        callback.reward.predictor.parameters(),
        strict=True,
    ):
        assert torch.equal(one, other)

    fresh = moment.load(tmp_path / "agent")
    del fresh.intrinsic_reward
    fresh.learn(half, callback=OnPolicyIntrinsicCallback(method, coefficient=2.0, config=SMALL))
    assert not same(whole, fresh)  # so the state did matter


def test_a_model_is_saved_again_without_having_been_trained(tmp_path: Path) -> None:
    model, _ = played(OnPolicyIntrinsicCallback("icm", config=SMALL, coefficient=0.7))
    model.save(tmp_path / "one")
    PPO.load(tmp_path / "one", device="cpu").save(tmp_path / "two")
    again = PPO.load(tmp_path / "two", clocks(3), device="cpu")
    callback = OnPolicyIntrinsicCallback.carried_by(again)
    assert callback.coefficient == 0.7
    again.learn(STEPS, callback=callback)  # with three environments instead of two


def test_a_reward_of_ones_own_has_to_be_made_anew_to_go_on(tmp_path: Path) -> None:
    def own() -> IntrinsicReward:
        config = dataclasses.replace(SMALL, epochs=3, minibatches=2, max_grad_norm=None)
        reward = make_reward("icm+gmc", Clock().observation_space, Clock().action_space, config)
        assert reward is not None
        return reward

    whole = agent()
    whole.learn(2 * STEPS, callback=OnPolicyIntrinsicCallback(own(), coefficient=2.0))
    whole.save(tmp_path / "agent")
    moment = Everything(whole.get_env())
    whole.learn(2 * STEPS, callback=whole.intrinsic_reward.callback, reset_num_timesteps=False)

    resumed = moment.load(tmp_path / "agent")
    with pytest.raises(StateError, match=r"expected method= with the reward 'icm\+gmc' made anew, got none"):
        OnPolicyIntrinsicCallback.carried_by(resumed)
    callback = OnPolicyIntrinsicCallback.carried_by(resumed, method=own())
    resumed.learn(2 * STEPS, callback=callback, reset_num_timesteps=False)
    assert same(whole, resumed)
    again = OnPolicyIntrinsicCallback.carried_by(resumed, method="icm+gmc")  # by name, its settings are those of own()
    assert again._settings["config"] == own().config.to_dict()


def test_a_model_that_carries_another_reward_is_refused() -> None:
    model, _ = played(OnPolicyIntrinsicCallback("icm", config=SMALL))
    with pytest.raises(StateError, match=r"expected the state of a reward 'rnd'.*carried_by\(model\)"):
        model.learn(STEPS, callback=OnPolicyIntrinsicCallback("rnd", config=SMALL))
    del model.intrinsic_reward
    model.learn(STEPS, callback=OnPolicyIntrinsicCallback("rnd", config=SMALL))


# Misuse


def test_two_rewards_for_one_model_are_refused() -> None:
    pair = [OnPolicyIntrinsicCallback("icm", config=SMALL), OnPolicyIntrinsicCallback("icm", config=SMALL)]
    with pytest.raises(MethodError, match="expected one callback with an intrinsic reward"):
        agent().learn(STEPS, callback=pair)


def test_an_off_policy_algorithm_is_refused() -> None:
    with pytest.raises(MethodError, match="got DQN"):
        DQN("MlpPolicy", clocks(1), buffer_size=10).learn(5, callback=OnPolicyIntrinsicCallback("icm"))


def test_an_algorithm_that_does_not_ask_its_buffer_is_refused() -> None:
    class Odd(PPO):
        def collect_rollouts(self, env: Any, callback: Any, *args: Any, **options: Any) -> bool:
            callback.on_rollout_start()
            callback.on_rollout_end()
            return True

    with pytest.raises(MethodError, match="the intrinsic reward would not reach the update"):
        agent(kind=Odd, batch_size=8).learn(STEPS, callback=OnPolicyIntrinsicCallback(Known()))


def test_a_method_that_pays_nothing_is_refused() -> None:
    with pytest.raises(MethodError, match="got 'ppo'"):
        OnPolicyIntrinsicCallback("ppo")


@pytest.mark.parametrize("method", ["icm+gcm", None])
def test_a_method_that_there_is_not_is_refused_at_once(method: Any) -> None:
    with pytest.raises(MethodError, match=f"icm.gmc.*got {re.escape(repr(method))}"):
        OnPolicyIntrinsicCallback(method)


@pytest.mark.parametrize("coefficient", [float("nan"), "0.1", None])
def test_a_coefficient_that_is_no_number_is_refused(coefficient: Any) -> None:
    with pytest.raises(MethodError, match=rf"coefficient: .*got {coefficient!r}"):
        OnPolicyIntrinsicCallback("icm", coefficient=coefficient)


def test_a_model_without_a_reward_has_none_to_go_on_with() -> None:
    with pytest.raises(StateError, match="expected a model that carries an intrinsic reward"):
        OnPolicyIntrinsicCallback.carried_by(agent())
