"""Spaces as rows of numbers: codings, and observations of several parts."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from headway.errors import EnvError, MethodError
from headway.rl import PPO, IntrinsicConfig, PPOConfig, Transitions, make_reward
from headway.rl.bonuses.bonus import Observations
from headway.rl.episodes import Episodes
from headway.rl.networks import make_encoder
from headway.rl.spaces import coding_of, is_image, leaves, looks_channels_first, pack, pack_one, pick, width


def test_a_choice_is_one_hot() -> None:
    coding = coding_of(spaces.Discrete(3, start=-1), "action")
    assert coding.size == 3
    assert coding.encode(torch.tensor([-1, 1])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert torch.equal(coding.encode(torch.tensor([[-1], [1]])), coding.encode(torch.tensor([-1, 1])))
    guesses = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, math.log(2.0)]])
    losses = coding.losses(guesses, torch.tensor([-1, 1]))
    assert losses.tolist() == pytest.approx([math.log(3), math.log(2)])


def test_several_choices_are_one_hot_side_by_side() -> None:
    coding = coding_of(spaces.MultiDiscrete([2, 3]), "action")
    assert coding.size == 5
    assert coding.encode(torch.tensor([[1, 0], [0, 2]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    losses = coding.losses(torch.zeros(2, 5), torch.tensor([[1, 0], [0, 2]]))
    assert losses.tolist() == pytest.approx([math.log(2) + math.log(3)] * 2)


def test_numbers_are_taken_as_they_are() -> None:
    coding = coding_of(spaces.Box(-1, 1, (2, 1), np.float64), "action")
    values = torch.tensor([[[1.0], [3.0]]], dtype=torch.float64)
    assert coding.encode(values).dtype == torch.float32
    assert coding.encode(values).tolist() == [[1.0, 3.0]]
    assert coding.losses(torch.tensor([[0.0, 0.0]]), values).tolist() == [5.0]


def test_bits() -> None:
    coding = coding_of(spaces.MultiBinary(2), "action")
    assert coding.encode(torch.tensor([[1, 0]])).tolist() == [[1.0, 0.0]]
    assert coding.losses(torch.zeros(1, 2), torch.tensor([[1, 0]])).tolist() == pytest.approx([2 * math.log(2)])


def test_what_has_no_coding_is_refused_with_a_way_out() -> None:
    box = spaces.Box(0, 1, (2,))
    with pytest.raises(EnvError, match="got Dict"):
        coding_of(spaces.Dict({"a": box}), "observation")
    with pytest.raises(EnvError, match="got Tuple"):
        coding_of(spaces.Tuple([box]), "action")


def test_images_have_three_dimensions() -> None:
    assert is_image(spaces.Box(0, 255, (8, 8, 3), np.uint8))
    assert not is_image(spaces.Box(0, 255, (8, 8), np.uint8))
    assert not is_image(spaces.MultiBinary((8, 8, 3)))


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((4, 84, 84), True),  # stacked frames
        ((3, 210, 160), True),
        ((20, 7, 7), True),
        ((3, 4, 4), True),
        ((210, 160, 3), False),
        ((84, 84, 4), False),
        ((7, 7, 20), False),  # a grid, one-hot
        ((3, 3, 20), None),  # a small grid, or three planes
        ((7, 3, 3), None),  # a long grid, or seven planes
        ((7, 9, 20), None),
        ((12, 210, 160), None),
    ],
)
def test_where_images_have_their_channels(shape: tuple[int, ...], first: bool | None) -> None:
    assert looks_channels_first(shape) is first


SPACE = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (6, 6, 3), np.uint8),
        "speed": spaces.Box(-1, 1, (2,), np.float32),
        "gear": spaces.Discrete(4),
        "hands": spaces.Tuple([spaces.Box(0, 1, (2, 2), np.float64), spaces.MultiBinary(3)]),
    }
)


class Rover(gymnasium.Env):
    """Six steps with a camera, a speed and a gear; pays where both choices of the action are the gear's."""

    observation_space = SPACE
    action_space = spaces.MultiDiscrete([3, 2], start=[1, 0])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        return self._seen(), {}

    def _seen(self) -> dict[str, Any]:
        seen = self.observation_space.sample()
        seen["speed"] = np.array([self.time / 10, -1], np.float32)
        seen["gear"] = np.int64(self.time % 2)
        self.gear = int(seen["gear"])
        return seen

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.time += 1
        pay = float(action[0] == 1 + self.gear) + float(action[1] == self.gear)
        return self._seen(), pay, self.time == 6, False, {}


def rovers(mode: AutoresetMode = AutoresetMode.SAME_STEP, count: int = 3) -> Any:
    return SyncVectorEnv([Rover] * count, autoreset_mode=mode)


def test_parts_stand_in_the_order_of_their_names() -> None:
    assert [name for name, _ in leaves(SPACE)] == ["camera", "gear", "hands.0", "hands.1", "speed"]
    assert width(SPACE) == 108 + 1 + 4 + 3 + 2
    values = {"b": np.array([[5, 6], [7, 8]]), "a": (np.array([1, 2]), np.array([[3.5], [4.5]]))}
    assert pack(values).tolist() == [[1, 3.5, 5, 6], [2, 4.5, 7, 8]]
    tensors = {"b": torch.tensor([[5, 6], [7, 8]]), "a": (np.array([1, 2]), np.array([[3.5], [4.5]]))}
    assert pack(tensors).tolist() == pack(values).tolist()
    assert pick(values, 1)["a"][0] == 2
    assert pack_one(pick(values, 1)).tolist() == [2, 4.5, 7, 8]


def test_each_part_is_read_by_its_own_coding() -> None:
    SPACE.seed(0)
    seen = [SPACE.sample() for _ in range(4)]
    batch = {name: np.stack([each[name] for each in seen]) for name in ("camera", "speed", "gear")}
    batch["hands"] = tuple(np.stack([each["hands"][i] for each in seen]) for i in range(2))
    reader = Observations(SPACE, IntrinsicConfig(observation_scale=0.5))
    assert reader.shape.parts == [(3, 6, 6), (4,), (4,), (3,), (2,)]
    rows = reader.read(torch.from_numpy(pack(batch)))
    parts = rows.split([108, 4, 4, 3, 2], dim=1)
    assert torch.equal(parts[0].view(4, 3, 6, 6), 0.5 * torch.from_numpy(batch["camera"]).permute(0, 3, 1, 2))
    assert torch.equal(parts[1], coding_of(SPACE["gear"], "observation").encode(torch.from_numpy(batch["gear"])))
    assert torch.equal(parts[4], torch.from_numpy(batch["speed"]))  # the factor is one on images


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_transitions_are_the_true_ones(mode: AutoresetMode) -> None:
    episodes = Episodes(rovers(mode))
    episodes.reset(seed=0)
    for _ in range(20):
        step = episodes.step(np.ones((3, 2), int))
        before, after = step.obs[step.valid][:, -2], step.next_obs[step.valid][:, -2]
        np.testing.assert_allclose(after - before, 0.1, atol=1e-6)  # the time, also at the end of an episode


@pytest.mark.parametrize("method", ["forward", "icm", "rnd", "gmc", "icm+gmc", "rnd+gmc"])
def test_an_agent_learns_from_parts_with_several_choices(method: str) -> None:
    reward = make_reward(method, SPACE, Rover.action_space, IntrinsicConfig(features=4, hidden=8, rnd_features=4))
    config = PPOConfig(rollout_steps=16, minibatch_size=24, hidden=(16,))
    ppo = PPO(rovers(), config, reward, seed=0)
    rows = [ppo.iterate() for _ in range(3)]
    assert all(row is not None and np.isfinite(row["intrinsic_std"]) for row in rows)
    assert rows[-1]["intrinsic_std"] > 0


@pytest.mark.slow
def test_parts_and_choices_are_learned() -> None:
    """The gear decides what pays, 2 for each of 6 steps; chance is 6 x (1/3 + 1/2) = 5."""
    config = PPOConfig(
        rollout_steps=32, minibatch_size=64, hidden=(32,), policy_learning_rate=3e-3, observation_scale=1 / 255
    )
    ppo = PPO(rovers(count=8), config, seed=0)
    rows = [ppo.iterate() for _ in range(15)]
    assert rows[0]["episode_return"] < 7
    assert rows[-1]["episode_return"] > 11


def test_a_dictionary_of_tensors_is_a_batch() -> None:
    reward = make_reward("icm", spaces.Dict({"a": SPACE["speed"], "b": SPACE["gear"]}), spaces.Discrete(2))
    obs = {"b": torch.tensor([0, 3, 1]), "a": torch.rand(3, 2)}
    assert reward.rewards(Transitions(obs, torch.tensor([0, 1, 0]), obs)).shape == (3,)
    with pytest.raises(EnvError, match=r"expected observations of arrays, got Text for words"):
        make_reward("icm", spaces.Dict({"words": spaces.Text(3)}), spaces.Discrete(2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grid", "nature", "impala"])
def test_encoders_by_name(kind: str) -> None:
    pixels = spaces.Box(0, 255, (3, 36, 36), np.uint8)
    config = IntrinsicConfig(encoder=kind, channels_first=True, features=4, hidden=8, rnd_features=4)
    for method in ("icm+gmc", "rnd+gmc"):
        reward = make_reward(method, pixels, spaces.Discrete(2), config)
        rng = np.random.default_rng(0)
        for _ in range(2):
            obs, following = rng.integers(0, 255, (2, 12, 3, 36, 36)).astype(np.uint8)
            result = reward.rewards_and_update(Transitions(obs, rng.integers(0, 2, 12), following))
        assert torch.isfinite(result.rewards).all()
        assert (result.rewards > 0).all()
    with pytest.raises(MethodError, match="encoder: expected one of auto, grid, nature, impala, got 'resnet'"):
        IntrinsicConfig(encoder="resnet")


def test_impala_has_the_published_sizes() -> None:
    """84x84x4 of Atari: 15 convolutions in three stages down to 11x11, and 256 features."""
    network = make_encoder((4, 84, 84), 6, 256, torch.Generator().manual_seed(0), kind="impala")
    weights = [tuple(p.shape) for p in network.parameters() if p.dim() > 1]
    assert len(weights) == 15 + 2
    assert weights[0] == (16, 4, 3, 3)
    assert weights[-2:] == [(256, 32 * 11 * 11), (6, 256)]
    nature = make_encoder((4, 84, 84), 6, 256, torch.Generator(), kind="nature")
    assert [tuple(p.shape) for p in nature.parameters() if p.dim() > 1][-2:] == [(512, 64 * 7 * 7), (6, 512)]


@pytest.mark.parametrize("network", ["nature", "impala"])
def test_agents_with_encoders_by_name(network: str) -> None:
    class Pixels(gymnasium.Env):
        observation_space = spaces.Box(0, 255, (3, 36, 36), np.uint8)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros((3, 36, 36), np.uint8), {}

        def step(self, action: int) -> Any:
            return np.full((3, 36, 36), 100, np.uint8), 1.0, False, False, {}

    env = SyncVectorEnv([Pixels] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    config = PPOConfig(rollout_steps=4, network=network, channels_first=True, observation_scale=1 / 255)
    ppo = PPO(env, config, seed=0)
    assert ppo.iterate() is not None
    frames = torch.full((1, 3, 36, 36), 255.0)
    scaled = ppo.agent.value.layers(frames / 255)
    torch.testing.assert_close(ppo.agent.values(frames), scaled)
    with pytest.raises(MethodError, match="network: expected 'mlp' or 'auto'"):
        PPO(gymnasium.make_vec("CartPole-v1", 2), PPOConfig(network=network))
