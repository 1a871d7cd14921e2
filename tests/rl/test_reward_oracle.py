"""Scores and training steps against the plain versions, in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.methods import make_reward
from tests.rl.batches import CONTINUOUS, DISCRETE, FLOAT_IMAGE, IMAGE, VECTOR, transitions
from tests.rl.plain import Plain

SMALL = replace(IntrinsicConfig.released(), features=5, hidden=8, rnd_features=6, learning_rate=1e-3)
SIZES = (9, 4, 8)  # 8 is also the width of a layer


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("observations", [VECTOR, IMAGE, FLOAT_IMAGE], ids=["vector", "grid", "noisy grid"])
@pytest.mark.parametrize("actions", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize("scorer", ["gmc", "error"])
@pytest.mark.parametrize("predictor", ["forward", "icm", "rnd"])
def test_rewards_and_weights_are_those_of_a_plain_loop(predictor, scorer, actions, observations) -> None:
    reward = make_reward(f"{predictor}+{scorer}", observations, actions, SMALL, seed=3)
    plain = Plain(reward.predictor, actions, SMALL)
    for seed, size in enumerate(SIZES):
        batch = transitions(size, seed, observations, actions, repeat=seed % 2 == 1)
        result = reward.rewards_and_update(batch)
        scores, errors = plain.rollout(batch)
        expected = scores if scorer == "gmc" else errors
        torch.testing.assert_close(result.rewards, expected.float(), rtol=2e-7, atol=1e-12)
        assert result.metrics["predictor_loss"] == pytest.approx(plain.total, rel=1e-9)
        assert result.metrics["grad_norm"] == pytest.approx(plain.norm, rel=1e-7)
        for (name, own), other in zip(reward.predictor.named_parameters(), plain.model.parameters(), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-7, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"floor_unit": "sample", "bias_correction": False},
        {"floor_unit": "relative", "floor": 0.5},
        {"floor": 1e-2, "beta_m": 0.5, "beta_v": 0.5},
        {"max_grad_norm": None, "icm_forward_factor": 1.0, "icm_inverse_weight": 0.3},
        {"max_grad_norm": 1e-3},
        {"rnd_normalise": False},
        {"rnd_clip": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("predictor", ["forward", "icm", "rnd"])
def test_settings_reach_the_formulas(predictor, changes) -> None:
    config = IntrinsicConfig(**{**SMALL.to_dict(), **changes})
    reward = make_reward(f"{predictor}+gmc", VECTOR, DISCRETE, config, seed=1)
    plain = Plain(reward.predictor, DISCRETE, config)
    for seed in range(3):
        batch = transitions(6, seed)
        scores, _ = plain.rollout(batch)
        torch.testing.assert_close(reward.rewards_and_update(batch).rewards, scores.float(), rtol=2e-7, atol=1e-12)
    for own, other in zip(reward.predictor.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("observations", [VECTOR, IMAGE], ids=["vector", "grid"])
@pytest.mark.parametrize("predictor", ["forward", "icm"])
def test_normalised_observations_are_what_the_networks_would_have_been_given(predictor, observations) -> None:
    """The first batch is normalised by itself, later ones by all that came before."""
    floats = FLOAT_IMAGE if observations is IMAGE else VECTOR
    config = replace(SMALL, normalise_observations=True, rnd_clip=1.5)
    own = make_reward(f"{predictor}+gmc", observations, DISCRETE, config, seed=1)
    given = make_reward(f"{predictor}+gmc", floats, DISCRETE, SMALL, seed=1)
    seen: list[torch.Tensor] = []
    for seed in range(3):
        batch = transitions(9, seed, observations, repeat=seed == 1)
        every = torch.cat(seen or [batch.next_obs.double()])
        mean, deviation = every.mean(0), every.std(0, correction=0)
        by_hand = [
            ((each - mean) / torch.where(deviation > 0, deviation, 1)).clamp(-1.5, 1.5)
            for each in (batch.obs, batch.next_obs)
        ]
        seen.append(batch.next_obs.double())
        expected = given.rewards_and_update(Transitions(by_hand[0], batch.actions, by_hand[1]))
        result = own.rewards_and_update(batch)
        torch.testing.assert_close(result.rewards, expected.rewards, rtol=1e-5, atol=1e-12)
        assert result.metrics["predictor_loss"] == pytest.approx(expected.metrics["predictor_loss"], rel=1e-9)


def test_different_decay_rates_are_both_used() -> None:
    config = IntrinsicConfig(**{**SMALL.to_dict(), "beta_m": 0.8, "beta_v": 0.9})
    with pytest.warns(UserWarning, match="differ"):
        reward = make_reward("gmc", VECTOR, DISCRETE, config)
    plain = Plain(reward.predictor, DISCRETE, config)
    for seed in range(3):
        batch = transitions(6, seed)
        scores, _ = plain.rollout(batch)
        torch.testing.assert_close(reward.rewards_and_update(batch).rewards, scores.float(), rtol=2e-7, atol=1e-12)


@pytest.mark.parametrize("gate", ["hard", "soft"])
def test_gates_take_away_and_never_add(gate: str) -> None:
    open_, gated = (make_reward(f"forward+{name}", VECTOR, DISCRETE, SMALL, seed=1) for name in ("gmc", f"gmc_{gate}"))
    assert gated.scorer.signal.gate == gate
    batch = transitions(16, 0, VECTOR, DISCRETE)
    for _ in range(8):  # the same one, so that some momentum stands out of noise
        with_gate, without = gated.rewards_and_update(batch).rewards, open_.rewards_and_update(batch).rewards
        assert (with_gate <= without).all()
    assert 0 < with_gate.sum() < without.sum()
