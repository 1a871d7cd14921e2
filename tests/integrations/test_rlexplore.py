"""The object with RLeXplore's interface: keys, shapes, weights, and what `sync` does."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from headway.errors import EnvError, MethodError, StateError
from headway.integrations.rlexplore import KEYS, RLeXploreReward
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Episodes
from headway.rl.learning import advantages
from tests.integrations import rllte_interface
from tests.integrations.worlds import SMALL, Clock, Known, assert_within_episodes

STEPS, ENVS = 12, 3


def clocks(mode: AutoresetMode = AutoresetMode.SAME_STEP) -> Any:
    makers = [lambda name=name: Clock(name, length=3 + name) for name in range(ENVS)]
    return SyncVectorEnv(makers, autoreset_mode=mode)


def rollout(shifted: bool = False, steps: int = STEPS) -> dict[str, torch.Tensor]:
    """Samples of the clocks; shifted: with the observations one step on, also where they are another episode's."""
    episodes = Episodes(clocks())
    episodes.reset(seed=0)
    rng = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {key: [] for key in KEYS}
    for _ in range(steps):
        step = episodes.step(rng.integers(0, 3, ENVS))
        following = episodes.obs if shifted else step.next_obs
        values = (step.obs, step.actions, step.rewards, step.terminated, step.truncated, following)
        for key, value in zip(KEYS, values, strict=True):
            rows[key].append(torch.as_tensor(np.array(value)))
    return {key: torch.stack(values) for key, values in rows.items()}


def as_stepped(env: Any, steps: int) -> dict[str, torch.Tensor]:
    """Samples as a loop stores them that takes whatever `step` returns."""
    obs, _ = env.reset(seed=0)
    rows = []
    for _ in range(steps):
        actions = np.zeros(ENVS, np.int64)
        following, rewards, terminated, truncated, _ = env.step(actions)
        rows.append((obs, actions, rewards, terminated, truncated, following))
        obs = following
    return {key: torch.as_tensor(np.array(each)) for key, each in zip(KEYS, zip(*rows, strict=True), strict=True)}


def made(envs: Any = None, **options: Any) -> RLeXploreReward:
    settings = {"method": Known(), "rwd_norm_type": "none", "obs_norm_type": "none", **options}
    return RLeXploreReward(clocks() if envs is None else envs, **settings)


def random_samples(space: spaces.Space[Any], actions: spaces.Space[Any]) -> dict[str, torch.Tensor]:
    space.seed(0)
    actions.seed(0)
    draw = {"observations": space, "actions": actions, "next_observations": space}
    samples = {
        key: np.stack([[each.sample() for _ in range(ENVS)] for _ in range(STEPS)]) for key, each in draw.items()
    }
    flags = {key: np.zeros((STEPS, ENVS), np.float32) for key in ("rewards", "terminateds", "truncateds")}
    return {key: torch.as_tensor(value) for key, value in {**samples, **flags}.items()}


class Raised(Known):
    """Pays 7 more, so that zero is not among its rewards."""

    @staticmethod
    def of(obs: Any, next_obs: Any) -> Any:
        return Known.of(obs, next_obs) + 7


class Spaces:
    """Stands for environments with these spaces."""

    def __init__(self, space: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space, self.num_envs = space, actions, ENVS


# The reward arrives


def test_a_known_reward_changes_advantages_by_its_discounted_sum() -> None:
    samples = rollout()
    own = made(beta=0.25).compute(samples).double().numpy()
    obs, following = samples["observations"], samples["next_observations"]
    assert np.allclose(own, 0.25 * Known.of(obs, following).numpy(), rtol=1e-6)
    rewards = samples["rewards"].double().numpy()
    terminated = samples["terminateds"].numpy()
    ended = terminated | samples["truncateds"].numpy()
    values = np.random.default_rng(1).normal(size=rewards.shape)
    before, after = (advantages(each, values, values, terminated, ended, 0.9, 0.8) for each in (rewards, rewards + own))
    for t, n in np.ndindex(*own.shape):
        last = next((k for k in range(t, STEPS) if ended[k, n]), STEPS - 1)
        theory = sum(0.72 ** (k - t) * own[k, n] for k in range(t, last + 1))
        assert after[t, n] - before[t, n] == pytest.approx(theory, rel=1e-9)


def test_transitions_into_the_next_episode_are_left_out_when_told_so() -> None:
    samples = rollout(shifted=True)
    ended = samples["terminateds"] | samples["truncateds"]
    irs = made(true_next_observations=False)
    rewards = irs.compute(samples)
    assert ended.any()
    assert (rewards[ended] == 0).all()
    assert (rewards[~ended] > 0).all()
    assert_within_episodes(irs.reward.shown[0])


@pytest.mark.parametrize("cut", [5, 6, 7, 8])  # also right after an end, so that the next call begins with a reset
@pytest.mark.parametrize("sync", [True, False])
def test_steps_that_only_begin_an_episode_are_left_out(cut: int, sync: bool) -> None:
    env = clocks(AutoresetMode.NEXT_STEP)
    samples = as_stepped(env, 20)
    irs = made(env, method=Raised())
    rewards = []
    for part in (slice(0, cut), slice(cut, 20)):
        given = {key: value[part] for key, value in samples.items()}
        rewards.append(irs.compute(given, sync=sync))
        if not sync:
            irs.update(given)
    obs, following = samples["observations"], samples["next_observations"]
    same_episode = obs[..., 1] == following[..., 1]
    assert not same_episode.all()
    assert torch.equal(torch.cat(rewards), torch.where(same_episode, Raised.of(obs, following), 0.0))
    for batch in irs.reward.shown:
        assert_within_episodes(batch)


def test_an_end_is_remembered_in_the_state() -> None:
    env = clocks(AutoresetMode.NEXT_STEP)
    samples = as_stepped(env, 20)
    ended = samples["terminateds"] | samples["truncateds"]
    cut = int(ended.any(1).nonzero()[0]) + 1
    first, rest = ({key: value[part] for key, value in samples.items()} for part in (slice(0, cut), slice(cut, 20)))
    whole, resumed = made(env, method="forward", config=SMALL), made(env, method="forward", config=SMALL)
    whole.compute(first)
    resumed.load_state_dict(whole.state_dict())
    rewards = resumed.compute(rest)
    assert (rewards[0] == 0).tolist() == ended[cut - 1].tolist()
    assert torch.equal(rewards, whole.compute(rest))


# Interface


def test_the_interface_is_that_of_rlexplore() -> None:
    stored = json.loads(rllte_interface.STORED.read_text("utf-8"))
    page = (Path(__file__).parents[2] / "docs/howto/rlexplore.md").read_text("utf-8")
    assert f"{stored.pop('package')} {stored.pop('version')}" in page
    assert rllte_interface.facts(RLeXploreReward, RLeXploreReward, MethodError) == stored


def test_the_stored_interface_is_that_of_the_library_itself() -> None:
    pytest.importorskip("rllte", reason="`make rllte` installs it apart and runs this")
    assert rllte_interface.of_the_library() == json.loads(rllte_interface.STORED.read_text("utf-8"))


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(3)),
        (spaces.Box(0, 255, (3, 8, 8), np.uint8), spaces.Box(-1, 1, (2,), np.float32)),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.MultiDiscrete([2, 3])),
        (spaces.Discrete(6), spaces.MultiBinary(3)),
    ],
)
@pytest.mark.parametrize("method", ["icm+gmc", "rnd", "forward"])
def test_rewards_have_the_shape_of_the_rollout(space: Any, actions: Any, method: str) -> None:
    normed = "none" if isinstance(space, spaces.Discrete) else "rms"
    irs = RLeXploreReward(Spaces(space, actions), method=method, obs_norm_type=normed)
    samples = random_samples(space, actions)
    for _ in range(2):
        rewards = irs.compute(samples)
        assert rewards.shape == (STEPS, ENVS)
        assert rewards.dtype == torch.float32
        assert rewards.isfinite().all()
    assert rewards.max() > 0


def first_layer(irs: RLeXploreReward) -> torch.nn.Conv2d:
    return next(each for each in irs.reward.predictor.modules() if isinstance(each, torch.nn.Conv2d))


@pytest.mark.parametrize(
    ("space", "channels", "scale"),
    [
        (spaces.Box(0, 255, (7, 7, 20), np.uint8), 20, 1 / 255),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), 4, 1 / 255),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), 3, 1 / 255),
        (spaces.Box(0, 1, (40, 40, 3), np.float32), 3, 1.0),
    ],
)
def test_images_are_read_in_their_own_layout_and_scale(space: Any, channels: int, scale: float) -> None:
    irs = RLeXploreReward(Spaces(space, spaces.Discrete(3)), obs_norm_type="none")
    assert first_layer(irs).in_channels == channels
    assert irs.reward.config.observation_scale == scale
    normalised = RLeXploreReward(Spaces(space, spaces.Discrete(3)), obs_norm_type="rms")
    assert normalised.reward.config.observation_scale == 1


def test_actions_may_have_a_last_dimension_of_one() -> None:
    samples = rollout()
    wide = {**samples, "actions": samples["actions"][..., None]}
    options = {"method": "forward", "config": SMALL}
    assert torch.equal(made(**options).compute(samples), made(**options).compute(wide))


def test_watch_gives_nothing_and_checks_shapes() -> None:
    irs, samples = made(), rollout()
    step = {key: value[0] for key, value in samples.items()}
    assert irs.watch(**step) is None
    with pytest.raises(MethodError, match=r"observations: expected shape \[3, 3\], got \[2, 3\]"):
        irs.watch(**{**step, "observations": step["observations"][:2]})


def test_making_it_leaves_the_environments_alone() -> None:
    class Untouchable(Spaces):
        def step(self, actions: Any) -> Any:
            raise AssertionError("stepped")

        reset = step

    made = RLeXploreReward(Untouchable(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)))
    assert made.weight > 0


# Weights and scales


def test_the_weight_falls_with_every_call() -> None:
    irs, samples = made(beta=0.5, kappa=0.1), rollout()
    first = irs.compute(samples)
    assert irs.weight == pytest.approx(0.5 * 0.9)
    second = irs.compute(samples)
    assert irs.weight == pytest.approx(0.5 * 0.81)
    torch.testing.assert_close(second, 0.9 * first)


def test_rms_divides_by_the_running_deviation() -> None:
    irs = made(rwd_norm_type="rms", beta=2.0)
    seen: list[np.ndarray] = []
    for steps in (5, 12):
        samples = rollout(steps=steps)
        raw = Known.of(samples["observations"], samples["next_observations"]).double().numpy()
        seen.append(raw.ravel())
        theory = 2 * raw / np.concatenate(seen).std()
        np.testing.assert_allclose(irs.compute(samples).numpy(), theory, rtol=1e-5)


def test_gamma_divides_by_the_deviation_of_discounted_sums() -> None:
    samples = rollout()
    raw = Known.of(samples["observations"], samples["next_observations"]).double().numpy()
    sums, now = [], np.zeros(ENVS)
    for row in raw:
        now = 0.9 * now + row
        sums.append(now)
    found = made(rwd_norm_type="rms", gamma=0.9).compute(samples)
    np.testing.assert_allclose(found.numpy(), raw / np.std(sums), rtol=1e-5)


def test_minmax_moves_rewards_to_the_unit_interval() -> None:
    samples = rollout()
    rewards = made(rwd_norm_type="minmax", beta=3.0).compute(samples)
    assert rewards.min() == 0
    assert rewards.max() == 3
    same = {key: value[:1, :].repeat(2, *[1] * (value.dim() - 1)) for key, value in samples.items()}
    same = {key: value[:, :1].repeat(1, ENVS, *[1] * (value.dim() - 2)) for key, value in same.items()}
    assert (made(rwd_norm_type="minmax").compute(same) == 0).all()  # no range, and no division by it


@pytest.mark.parametrize("norm", ["rms", "minmax"])
@pytest.mark.parametrize("sync", [True, False])
def test_what_is_not_paid_does_not_move_the_scale(norm: Any, sync: bool) -> None:
    samples = rollout(shifted=True)
    ended = samples["terminateds"] | samples["truncateds"]
    paid = Known.of(samples["observations"], samples["next_observations"])[~ended].double() + 7
    theory = paid / paid.std(correction=0) if norm == "rms" else (paid - paid.min()) / (paid.max() - paid.min())
    rewards = made(method=Raised(), rwd_norm_type=norm, true_next_observations=False).compute(samples, sync=sync)
    torch.testing.assert_close(rewards[~ended], theory.float())
    assert (rewards[ended] == 0).all()


@pytest.mark.parametrize("norm", ["rms", "minmax", "none"])
def test_a_rollout_of_ends_alone_pays_nothing(norm: Any) -> None:
    samples = {**rollout(), "terminateds": torch.ones(STEPS, ENVS, dtype=torch.bool)}
    assert (made(rwd_norm_type=norm, true_next_observations=False).compute(samples) == 0).all()


def test_observations_are_normalised_with_what_was_seen() -> None:
    irs, samples = made(obs_norm_type="rms"), rollout()
    irs.compute(samples)
    obs = samples["observations"].reshape(-1, 3).double()
    theory = ((obs - obs.mean(0)) / obs.std(0, correction=0)).clamp(-5, 5)
    torch.testing.assert_close(irs.reward.shown[0].obs.double(), theory, rtol=1e-5, atol=1e-6)


# Sync


@pytest.mark.parametrize("gamma", [None, 0.9])
def test_sync_is_update_after_compute(gamma: float | None) -> None:
    options = {"method": "icm+gmc", "config": SMALL, "rwd_norm_type": "rms", "obs_norm_type": "rms", "gamma": gamma}
    together, apart = made(**options), made(**options)
    for steps in (6, 12, 9):
        samples = rollout(steps=steps)
        together.compute(samples, sync=True)
        apart.compute(samples, sync=False)
        apart.update(samples)
    for key in ("reward", "obs_norm", "rwd_norm", "discounted"):
        assert same_numbers(together.state_dict()[key], apart.state_dict()[key])
    assert together.metrics["loss"] == apart.metrics["loss"]


def test_without_sync_nothing_changes_but_the_count() -> None:
    irs, samples = made(method="icm+gmc", config=SMALL, rwd_norm_type="rms", obs_norm_type="rms"), rollout()
    irs.compute(samples)
    before = irs.state_dict()
    irs.compute(samples, sync=False)
    after = irs.state_dict()
    assert after["global_step"] == before["global_step"] + 1
    for key in ("reward", "obs_norm", "rwd_norm"):
        assert same_numbers(before[key], after[key])
    assert len(irs.metrics["loss"]) == 1
    assert len(irs.metrics["intrinsic_rewards"]) == 2


def same_numbers(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_numbers(one[key], other[key]) for key in one)
    return bool(one == other) if not isinstance(one, list) else all(map(same_numbers, one, other))


def test_metrics_are_pairs_of_step_and_value() -> None:
    irs = made(method="icm+gmc", config=SMALL)
    for _ in range(2):
        irs.compute(rollout())
    assert [step for step, _ in irs.metrics["loss"]] == [1, 2]
    assert irs.metrics["intrinsic_rewards"][0] == [1, 0.0]  # no momentum yet
    assert irs.metrics["intrinsic_rewards"][1][1] > 0
    assert "inverse_loss" in irs.metrics


# State


def test_saved_and_resumed_equals_uninterrupted() -> None:
    options = {"method": "icm+gmc", "config": SMALL, "rwd_norm_type": "rms", "obs_norm_type": "rms", "gamma": 0.9}
    whole, resumed = made(kappa=0.1, **options), made(kappa=0.1, seed=5, **options)
    whole.compute(rollout())
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file))
    for steps in (7, 12):
        one, other = (irs.compute(rollout(steps=steps)) for irs in (whole, resumed))
        assert torch.equal(one, other)
        assert one.max() > 0
    assert whole.metrics == resumed.metrics


def test_the_state_of_other_settings_is_refused() -> None:
    state = made(method="icm", config=SMALL, rwd_norm_type="rms").state_dict()
    with pytest.raises(StateError, match="expected a state without rwd_norm, got one with"):
        made(method="icm", config=SMALL).load_state_dict(state)


# Misuse


def test_a_missing_key_is_named() -> None:
    samples = rollout()
    del samples["truncateds"]
    with pytest.raises(MethodError, match="got none of truncateds"):
        made().compute(samples)


@pytest.mark.parametrize("call", ["compute", "update"])
def test_arrays_that_are_no_tensors_are_named(call: str) -> None:
    samples = {**rollout(), "actions": rollout()["actions"].numpy()}
    with pytest.raises(MethodError, match=r"actions: .*got ndarray"):
        getattr(made(), call)(samples)


@pytest.mark.parametrize("call", ["compute", "update"])
def test_a_wrong_shape_is_named(call: str) -> None:
    samples = {**rollout(), "rewards": torch.zeros(STEPS, ENVS + 1)}
    with pytest.raises(MethodError, match=r"rewards: .*got \[12, 4\]"):
        getattr(made(), call)(samples)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rwd_norm_type": "max"}, "rwd_norm_type: expected one of rms, minmax, none, got 'max'"),
        ({"obs_norm_type": "max"}, "obs_norm_type: expected one of rms, none, got 'max'"),
        ({"gamma": 0.9}, "gamma: expected none with rwd_norm_type='none'"),
        ({"method": "ppo"}, "expected a method with an intrinsic reward"),
        ({"kappa": 2}, "kappa: expected a number from 0 to 1, got 2"),
        ({"kappa": -0.1}, "kappa: expected a number from 0 to 1, got -0.1"),
        ({"beta": "1"}, "beta: expected a finite number, got '1'"),
    ],
)
def test_settings_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MethodError, match=message):
        made(**options)


def test_a_shape_that_does_not_tell_its_layout_is_refused_with_the_settings_to_give() -> None:
    envs = Spaces(spaces.Box(0, 255, (7, 9, 20), np.uint8), spaces.Discrete(3))
    with pytest.raises(EnvError, match=r"got \[7, 9, 20\]; .*observation_scale=0.00392157, rnd_normalise=True"):
        RLeXploreReward(envs, obs_norm_type="none")
    config = IntrinsicConfig(channels_first=False, observation_scale=0.00392157, rnd_normalise=True)
    assert first_layer(RLeXploreReward(envs, obs_norm_type="none", config=config)).in_channels == 20


def test_only_boxes_are_normalised() -> None:
    with pytest.raises(EnvError, match="use obs_norm_type='none'"):
        RLeXploreReward(Spaces(spaces.Discrete(3), spaces.Discrete(2)))


def test_a_missing_package_is_named_with_the_command() -> None:
    code = "import sys; sys.modules['gymnasium'] = None; from headway.integrations.rlexplore import RLeXploreReward"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtraError: gymnasium is not installed; run: pip install 'headway-torch[rl]'" in done.stderr


def test_gymnasiums_own_environments_work() -> None:
    envs = gymnasium.make_vec("CartPole-v1", ENVS, vectorization_mode="sync")
    irs = RLeXploreReward(envs, config=SMALL)
    rewards = irs.compute(random_samples(envs.single_observation_space, envs.single_action_space))
    assert rewards.shape == (STEPS, ENVS)
