"""Protocols of exploration: presets, overrides, and what becomes of them."""

from __future__ import annotations

import dataclasses

import pytest

from headway.errors import ProtocolError
from headway.rl.config import IntrinsicConfig, PPOConfig
from headway.runs import RunSpec
from headway.study.protocols.minigrid import ExplorationProtocol


def test_the_presets_differ_where_text_and_code_do() -> None:
    paper, released = ExplorationProtocol.paper(), ExplorationProtocol.released()
    before, after = paper.to_dict(), released.to_dict()
    differences = {name for name in before if before[name] != after[name]}
    assert differences == {
        "noise_channel",
        "truncation",
        "floor_unit",
        "bias_correction",
        "curve_block",
        "interval_ddof",
    }
    assert released.noise_channel == "always"
    assert released.ppo.truncation == "terminate"


def test_released_is_the_papers_table() -> None:
    ppo, intrinsic = ExplorationProtocol.released().ppo, ExplorationProtocol.released().reward
    assert (ppo.policy_learning_rate, ppo.value_learning_rate) == (3e-4, 1e-3)
    assert (ppo.gamma, ppo.gae_lambda, ppo.clip, ppo.entropy_weight) == (0.99, 0.95, 0.2, 0.01)
    assert (ppo.max_grad_norm, ppo.epochs, ppo.minibatch_size, ppo.rollout_steps) == (0.5, 4, 256, 2048)
    assert (ppo.extrinsic_scale, ppo.intrinsic_scale, ppo.value_heads) == (10, 0.02, 1)
    assert (ppo.channels, ppo.hidden, ppo.observation_scale) == ((32, 64, 64), (128,), 1)
    assert (ppo.normalise_advantages, ppo.value_clip, ppo.normalise_intrinsic) == ("rollout", None, False)
    assert intrinsic == IntrinsicConfig.released()
    assert ExplorationProtocol.paper().reward == IntrinsicConfig.paper()
    assert ExplorationProtocol.released().steps_for() == 1465 * 2048


def test_fast_is_released_with_more_environments() -> None:
    fast, released = ExplorationProtocol.fast(), ExplorationProtocol.released()
    assert (fast.num_envs, fast.ppo.rollout_steps) == (16, 128)
    assert fast.replaced(num_envs=1, rollout_steps=2048, return_window=10) == released


def test_every_setting_of_ppo_is_a_field() -> None:
    fields = ExplorationProtocol().to_dict().keys()
    settings = {field.name for field in dataclasses.fields(PPOConfig)} - {
        *("adam_epsilon", "channels_first", "centre_intrinsic", "warm_up_steps")
    }
    assert settings <= fields
    assert ExplorationProtocol.quick().ppo.channels_first is False  # as all grids
    changed = ExplorationProtocol.quick().override(
        {
            "channels": "4x8",
            "hidden": "16",
            "value_heads": "2",
            "intrinsic_episodic": "false",
            "value_clip": "0.2",
            "beta_v": "0.9",
            "num_envs": "3",
        }
    )
    assert changed.ppo.channels == (4, 8)
    assert changed.ppo.hidden == (16,)
    assert changed.ppo.value_heads == 2
    assert changed.ppo.intrinsic_episodic is False
    assert changed.ppo.value_clip == 0.2
    assert (changed.reward.beta_m, changed.reward.beta_v) == (0.99, 0.9)


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("colour", "red", "expected a field of the protocol, got 'colour'"),
        ("clipp", "1", "did you mean clip"),
        ("channels", "4,8", "channels: expected whole numbers such as 32x64x64, got '4,8'"),
        ("value_heads", "3", "value_heads: expected one of 1, 2, got '3'"),
        ("truncation", "never", "truncation: expected one of bootstrap, terminate, got 'never'"),
        ("num_envs", "0", "num_envs: expected at least 1, got 0"),
        ("gamma", "2", r"gamma: expected a number in \[0, 1\]"),
        ("beta", "1", r"expected a decay rate in \[0, 1\), got 1"),
        ("view", "partial", "view: expected full with backend=vector, got partial; set backend=minigrid"),
    ],
)
def test_bad_overrides_are_refused(field: str, text: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        ExplorationProtocol.released().override({field: text})


def test_dictionaries_round_trip_also_through_a_spec() -> None:
    quick = ExplorationProtocol.quick()
    assert ExplorationProtocol.from_dict(quick.to_dict()) == quick
    spec = RunSpec(experiment="doorkey", method="icm", seed=0, protocol=quick.to_dict())
    assert ExplorationProtocol.from_dict(RunSpec.from_json(spec.to_json()).protocol) == quick


def test_lengths_are_rounded_up_to_whole_rollouts() -> None:
    fast = ExplorationProtocol.fast()
    assert fast.steps_for(1) == 2048
    assert fast.steps_for(2048) == 2048
    assert fast.steps_for(2049) == 4096


def test_a_later_setting_enters_a_spec_where_it_is_not_the_default() -> None:
    quick = ExplorationProtocol.quick()
    assert "encoder" not in quick.to_dict()
    other = quick.override({"encoder": "nature", "reward_channels_first": True, "adam_epsilon": 1e-5})
    assert other.to_dict() == quick.to_dict() | {
        "encoder": "nature",
        "reward_channels_first": True,
        "adam_epsilon": 1e-5,
    }
    assert (other.reward.encoder, other.reward.channels_first, other.ppo.channels_first) == ("nature", True, False)
    assert ExplorationProtocol.from_dict(other.to_dict()) == other


@pytest.mark.parametrize(
    ("field", "value"), [("channels", [4, 8]), ("channels", "4x8"), ("clip", 1), ("value_clip", None), ("view", "full")]
)
def test_plain_values_are_taken_as_they_are(field: str, value: object) -> None:
    protocol = ExplorationProtocol.quick().override({field: value})
    assert protocol.to_dict()[field] == ((4, 8) if field == "channels" else value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("channels", [4.5]), ("clip", True), ("num_envs", 1.5), ("value_heads", True), ("env_id", 3), ("view", ["full"])],
)
def test_plain_values_of_another_type_are_refused(field: str, value: object) -> None:
    with pytest.raises(ProtocolError, match=field):
        ExplorationProtocol.quick().override({field: value})
