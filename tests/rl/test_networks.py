"""The agent's networks against plain torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from headway.errors import MethodError
from headway.rl import make_env
from headway.rl.agent import Policy
from headway.rl.config import PPOConfig
from headway.rl.networks import network_for


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_network(shape: tuple[int, ...], *args: Any, **options: Any) -> Any:
    return network_for(Box(-1, 1, shape), *args, **options)


def test_convolutions_are_those_of_torch() -> None:
    network = make_network((8, 6, 4), 7, PPOConfig(), generator())
    convolutions = list(network.convolutions)
    plain = nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU(), convolutions[2], nn.ReLU())
    observations = torch.randn(5, 8, 6, 4, generator=generator())
    planes = plain(observations.permute(0, 3, 1, 2).contiguous())
    expected = network.layers(planes.permute(0, 2, 3, 1).reshape(5, -1))
    torch.testing.assert_close(network(observations), expected)


def test_the_released_networks_have_the_released_sizes() -> None:
    shapes = [tuple(p.shape) for p in make_network((8, 8, 4), 7, PPOConfig(), generator()).parameters()]
    weights = [(32, 4, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3), (128, 4096), (7, 128)]
    assert shapes == [shape for weight in weights for shape in (weight, weight[:1])]


def test_weights_are_drawn_as_torch_draws_them_and_from_the_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = (make_network((8, 8, 4), 7, PPOConfig(), generator(1)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    weight = first.layers[0].weight.detach()
    bound = 4096**-0.5
    assert weight.abs().max() <= bound
    assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.01)


def test_layers_alone() -> None:
    config = PPOConfig(hidden=(16, 8))
    shapes = [tuple(p.shape) for p in make_network((5,), 2, config, generator()).parameters()]
    assert shapes == [(16, 5), (16,), (8, 16), (8,), (2, 8), (2,)]
    flat = make_network((3, 3, 2), 2, PPOConfig(network="mlp"), generator())
    assert flat(torch.zeros(4, 3, 3, 2)).shape == (4, 2)
    assert make_network((3, 3, 2), 2, PPOConfig(channels=()), generator())(torch.zeros(4, 3, 3, 2)).shape == (4, 2)


def test_orthogonal_weights_start_with_an_almost_uniform_policy() -> None:
    network = make_network((5, 5, 3), 7, PPOConfig(initialisation="orthogonal"), generator(), last_gain=0.01)
    last = network.layers[-1].weight.detach()
    torch.testing.assert_close(last @ last.T, 1e-4 * torch.eye(7), atol=1e-8, rtol=0)
    outputs = network(torch.randn(20, 5, 5, 3, generator=generator()))
    assert (outputs.softmax(1) - 1 / 7).abs().max() < 0.05


def test_convolutions_need_an_image() -> None:
    with pytest.raises(MethodError, match="got 'cnn'"):
        make_network((5,), 2, PPOConfig(network="cnn"), generator())


def test_channels_first_images_are_the_same_images() -> None:
    last = make_network((8, 8, 4), 7, PPOConfig(), generator())
    first = make_network((4, 8, 8), 7, PPOConfig(channels_first=True), generator())
    observations = torch.randn(5, 8, 8, 4, generator=generator())
    torch.testing.assert_close(first(observations.permute(0, 3, 1, 2).contiguous()), last(observations))


def test_images_that_look_like_channels_first_have_to_be_said_to_be() -> None:
    message = r"got None for observations of shape \[4, 84, 84\].*use PPOConfig\(channels_first=True\)"
    with pytest.raises(MethodError, match=message):
        make_network((4, 84, 84), 2, PPOConfig(), generator())
    small = {"channels": (2,), "hidden": (3,)}
    shapes = [
        tuple(
            make_network((4, 84, 84), 2, PPOConfig(channels_first=each, **small), generator())
            .convolutions[0]
            .weight.shape
        )
        for each in (True, False)
    ]
    assert shapes == [(2, 4, 3, 3), (2, 84, 3, 3)]
    assert make_network((4, 84, 84), 2, PPOConfig(network="mlp"), generator())(torch.zeros(1, 4, 84, 84)).shape == (
        1,
        2,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout_steps": 0}, "rollout_steps: expected at least 1, got 0"),
        ({"clip": 0.0}, "clip: expected a number above 0"),
        ({"policy_learning_rate": float("nan")}, "policy_learning_rate: expected a number above 0, got nan"),
        ({"value_clip": -1.0}, "value_clip: expected a number above 0 or none"),
        ({"gamma": 1.5}, r"gamma: expected a number in \[0, 1\], got 1.5"),
        ({"entropy_weight": -0.1}, "entropy_weight: expected a number of at least 0"),
        ({"hidden": (8, 0)}, "hidden: expected widths of at least 1"),
        ({"value_heads": 3}, "value_heads: expected one of 1, 2, got 3"),
        ({"truncation": "ignore"}, "truncation: expected one of bootstrap, terminate, got 'ignore'"),
    ],
)
def test_settings_without_meaning_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(MethodError, match=message):
        PPOConfig(**changes)


def test_a_policy_that_loads_weights_forgets_what_the_old_ones_said() -> None:
    env = make_env("MiniGrid-DoorKey-5x5-v0")
    one, other = (
        Policy(env.single_observation_space, env.single_action_space, PPOConfig(), generator(seed)) for seed in (0, 1)
    )
    observations, _ = env.reset(seed=0)
    assert not (one.act(observations) == other.act(observations)).all()
    one.load_state_dict(other.state_dict())
    assert (one.act(observations) == other.act(observations)).all()
