"""What holds for every intrinsic reward: order, state, sizes, errors."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import headway
from headway.errors import EnvError, MethodError, StateError
from headway.rl.bonuses import BONUSES, Forward, Prediction, Predictor, register_predictor
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.methods import METHODS, Method, make_reward, methods_of
from headway.rl.networks import perceptron
from headway.rl.reward import IntrinsicReward
from headway.rl.scorers import SCORERS, ErrorScorer, SignalScorer, register_scorer
from tests.rl.batches import CONTINUOUS, DISCRETE, IMAGE, VECTOR, transitions

SMALL = replace(IntrinsicConfig.released(), features=5, hidden=8, rnd_features=6)
PARTS = IntrinsicConfig(features=5, hidden=8, rnd_features=6, epochs=2, minibatches=3, train_share=0.5)
RELEASED = IntrinsicConfig.released()
EVERY = [f"{predictor}+{scorer}" for predictor in ("forward", "icm", "rnd") for scorer in SCORERS.names()]


CASES = [
    *(pytest.param(method, SMALL, id=method) for method in EVERY),
    *(pytest.param(method, PARTS, id=f"{method} in parts") for method in METHODS[1:]),
]


def made(method: str, config: IntrinsicConfig = SMALL, seed: int = 0, **given: Any) -> IntrinsicReward:
    reward = make_reward(method, given.get("observations", VECTOR), given.get("actions", DISCRETE), config, seed=seed)
    assert reward is not None
    return reward


def numbers(state: Any) -> list[torch.Tensor]:
    """All tensors of a state, in order."""
    if isinstance(state, torch.Tensor):
        return [state.clone()]
    items = state.values() if isinstance(state, dict) else state if isinstance(state, list) else ()
    return [tensor for item in items for tensor in numbers(item)]


def equal(one: Any, other: Any) -> bool:
    pairs = list(zip(numbers(one), numbers(other), strict=True))
    return bool(pairs) and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "config"), CASES)
def test_rewards_are_those_before_the_update_and_change_nothing(method: str, config: IntrinsicConfig) -> None:
    together, apart = made(method, config), made(method, config)
    for seed in range(3):
        batch = transitions(12, seed)
        before = apart.state_dict()
        rewards = apart.rewards(batch)
        assert equal(before, apart.state_dict())
        assert all(parameter.grad is None for parameter in apart.predictor.parameters())
        metrics = apart.update(batch)
        result = together.rewards_and_update(batch)
        torch.testing.assert_close(result.rewards, rewards)
        assert result.rewards.dtype == torch.float32
        assert result.rewards.shape == (12,)
        assert not result.rewards.requires_grad
        assert {name: result.metrics[name] for name in metrics} == pytest.approx(metrics)
        assert equal(apart.state_dict(), together.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize(("method", "config"), CASES)
def test_a_state_resumes_bit_for_bit(method: str, config: IntrinsicConfig) -> None:
    whole = made(method, config)
    expected = [whole.rewards_and_update(transitions(10 + seed, seed)).rewards for seed in range(4)]
    first = made(method, config)
    for seed in range(2):
        first.rewards_and_update(transitions(10 + seed, seed))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = made(method, config, seed=99)
    second.load_state_dict(torch.load(file, weights_only=True))
    for seed in range(2, 4):
        assert torch.equal(second.rewards_and_update(transitions(10 + seed, seed)).rewards, expected[seed])
    assert equal(whole.state_dict(), second.state_dict())


@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.parametrize("observations", [VECTOR, IMAGE], ids=["vector", "grid"])
def test_any_number_of_transitions_will_do(method: str, observations: spaces.Space) -> None:
    reward = made(method, observations=observations)
    for seed, samples in enumerate((1, 8, 1, 5, 30, 6, 4)):  # also widths of layers, channels and sides of the grid
        result = reward.rewards_and_update(transitions(samples, seed, observations))
        assert result.rewards.shape == (samples,)
        assert torch.isfinite(result.rewards).all()


@pytest.mark.parametrize("method", ["gmc", "icm+gmc", "rnd+gmc"])
def test_the_first_rollout_has_no_momentum_to_be_compared_with(method: str) -> None:
    reward = made(method)
    assert (reward.rewards_and_update(transitions(7)).rewards == 0).all()
    assert (reward.rewards_and_update(transitions(7, 1)).rewards > 0).all()


def test_the_seed_decides_the_weights() -> None:
    same = [made("rnd", seed=seed).rewards(transitions(5)) for seed in (3, 3, 4)]
    assert torch.equal(same[0], same[1])
    assert not torch.equal(same[0], same[2])


def test_nothing_is_drawn_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    made("icm+gmc", PARTS).rewards_and_update(transitions(9))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_encoder_does_not_learn_from_the_forward_loss() -> None:
    reward = made("icm+gmc", IntrinsicConfig(features=5, hidden=8, icm_inverse_weight=0.0))
    encoder = [parameter.clone() for parameter in reward.predictor.encoder.parameters()]
    reward.rewards_and_update(transitions(9))
    assert all(torch.equal(a, b) for a, b in zip(encoder, reward.predictor.encoder.parameters(), strict=True))


def test_the_random_network_stays() -> None:
    reward = made("rnd+gmc")
    target = [parameter.clone() for parameter in reward.predictor.target.parameters()]
    losses = [reward.rewards_and_update(transitions(9)).metrics["predictor_loss"] for _ in range(30)]
    assert losses[-1] < losses[0]
    assert all(torch.equal(a, b) for a, b in zip(target, reward.predictor.target.parameters(), strict=True))


@pytest.mark.slow
def test_prediction_error_falls_on_what_is_seen_again() -> None:
    for method in ("forward", "icm", "rnd"):
        reward = made(method, replace(RELEASED, hidden=32, learning_rate=3e-3, icm_inverse_weight=0.0))
        seen, unseen = transitions(16, 0), transitions(16, 1)
        first = reward.rewards(seen).mean()
        for _ in range(150):
            reward.update(seen)
        assert reward.rewards(seen).mean() < 0.5 * first, method
        assert reward.rewards(seen).mean() < reward.rewards(unseen).mean(), method


def test_metrics_name_the_losses_that_there_are() -> None:
    common = {"predictor_loss", "grad_norm", "score_mean", "score_std"}
    assert set(made("forward").rewards_and_update(transitions(5)).metrics) == common | {"forward_loss"}
    assert set(made("rnd").rewards_and_update(transitions(5)).metrics) == common
    result = made("icm+gmc").rewards_and_update(transitions(5))
    assert set(result.metrics) == common | {"forward_loss", "inverse_loss", "under_floor"}
    icm = made("icm").rewards_and_update(transitions(5))
    assert icm.metrics["score_mean"] == pytest.approx(float(icm.rewards.mean()))
    assert icm.metrics["score_std"] == pytest.approx(float(icm.rewards.std(correction=0)))
    assert icm.metrics["forward_loss"] == pytest.approx(icm.metrics["score_mean"])
    weighted = 0.8 * icm.metrics["inverse_loss"] + 0.2 * icm.metrics["forward_loss"]
    assert icm.metrics["predictor_loss"] == pytest.approx(weighted)


def test_delta_loss_tells_actions_apart() -> None:
    reward = made("forward+delta_loss", actions=spaces.Discrete(3, start=-1))
    batch = transitions(30, actions=spaces.Discrete(3, start=-1))
    for _ in range(2):
        assert (reward.rewards_and_update(batch).rewards == 0).all()
    rewards = reward.rewards_and_update(batch).rewards
    by_action = [rewards[batch.actions == action].unique() for action in (-1, 0, 1)]
    assert [len(values) for values in by_action] == [1, 1, 1]
    assert len(torch.cat(by_action).unique()) == 3
    assert (rewards > 0).all()  # the same batch again and again: every loss falls


def test_a_user_joins_parts_of_their_own() -> None:
    generator = torch.Generator().manual_seed(0)
    for scorer in ("error", headway.NormAll(norm="l2-squared"), SignalScorer(headway.GMC(beta=0.9))):
        reward = IntrinsicReward(Forward(VECTOR, DISCRETE, SMALL, generator), scorer)
        assert reward.rewards_and_update(transitions(5)).rewards.shape == (5,)
        assert reward.name.startswith("forward+")


@pytest.mark.parametrize("predictor", ["forward", "icm", "rnd"])
@pytest.mark.parametrize(
    "actions",
    [spaces.Discrete(3, start=5), CONTINUOUS, spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(3)],
    ids=lambda space: type(space).__name__,
)
@pytest.mark.parametrize(
    "observations",
    [VECTOR, IMAGE, spaces.Box(0, 1, (2, 3), np.float64), spaces.Box(0, 255, (40, 36, 3), np.uint8)],
    ids=["vector", "grid", "matrix", "pixels"],
)
def test_spaces(predictor: str, actions: spaces.Space, observations: spaces.Space) -> None:
    reward = made(f"{predictor}+gmc", observations=observations, actions=actions)
    for seed in range(2):
        result = reward.rewards_and_update(transitions(4, seed, observations, actions))
    assert (result.rewards > 0).all()


def test_discrete_observations_are_one_hot() -> None:
    space = spaces.Discrete(4)
    batch = Transitions(np.array([0, 1, 3]), np.array([0, 1, 2]), np.array([1, 3, 0]))
    for method in METHODS[1:]:
        assert made(method, observations=space).rewards_and_update(batch).rewards.shape == (3,)


def test_channels_first_images_are_the_same_images() -> None:
    batch = transitions(5, 0, IMAGE)
    turned = Transitions(batch.obs.permute(0, 3, 1, 2), batch.actions, batch.next_obs.permute(0, 3, 1, 2))
    space = spaces.Box(0, 255, (4, 5, 5), np.uint8)
    first = replace(SMALL, channels_first=True)
    for method in ("icm", "rnd"):
        one, other = made(method, observations=IMAGE), made(method, first, observations=space)
        torch.testing.assert_close(one.rewards(batch), other.rewards(turned))


def test_images_that_look_like_channels_first_need_a_config() -> None:
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    with pytest.raises(EnvError, match=r"shape \[4, 84, 84\].*use IntrinsicConfig\(channels_first=True\)"):
        make_reward("icm", space, DISCRETE)
    assert make_reward("icm", space, DISCRETE, IntrinsicConfig(channels_first=True)) is not None
    assert make_reward("icm", space, DISCRETE, IntrinsicConfig()) is not None


@pytest.mark.parametrize("method", ["forward", "icm", "gmc", "icm+gmc"])
def test_an_action_space_that_a_predictor_cannot_handle_is_refused(method: str) -> None:
    with pytest.raises(EnvError, match="got Tuple"):
        make_reward(method, VECTOR, spaces.Tuple([DISCRETE, CONTINUOUS]))


@pytest.mark.parametrize("name", ["ppo+gmc", "", "gmc+icm", "icm+", "+gmc", "icm+gmc+gmc", "ICM", "error"])
def test_an_unknown_method_lists_the_known_ones(name: str) -> None:
    with pytest.raises(MethodError, match=r"expected a method out of ppo, forward, .*delta_loss.*joined by '\+', got"):
        methods_of(name)


def test_names_of_methods() -> None:
    assert methods_of("ppo") == []
    assert make_reward("ppo", None, None) is None
    assert methods_of("gmc") == [Method("gmc", "forward", "gmc")]
    assert methods_of("rnd") == [Method("rnd", "rnd", "error")]
    assert methods_of("icm+norm_all") == [Method("icm+norm_all", "icm", "norm_all")]


def test_a_predictor_of_ones_own_goes_with_every_scorer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BONUSES, "_entries", dict(BONUSES._entries))

    @register_predictor("change")
    class Change(Predictor):
        def __init__(self, observation_space, action_space, config, generator) -> None:
            super().__init__()
            self.scored = perceptron([6, config.hidden, 6], generator)

        def predict(self, batch: Transitions, train: bool) -> Prediction:
            losses = (self.scored(batch.obs) - (batch.next_obs - batch.obs)).square().mean(1)
            return Prediction(losses, losses.detach())

    for scorer in SCORERS.names():
        reward = made(f"change+{scorer}")
        for seed in range(2):
            assert torch.isfinite(reward.rewards_and_update(transitions(5, seed)).rewards).all()
    assert isinstance(made("change").scorer, ErrorScorer)


@pytest.mark.parametrize("scorer", ["error", "gmc", "curiosity", "delta_loss"])
def test_minibatches_are_trained_on_without_rewards(scorer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that nobody asks for are not computed, and training is the same as with them."""
    lazy, eager = made(f"dropout+{scorer}", PARTS), made(f"dropout+{scorer}", PARTS)

    def train(predict: Callable[[], Prediction], actions: torch.Tensor) -> Prediction:
        prediction = predict()
        eager.scorer.backward(prediction, actions)
        return prediction

    monkeypatch.setattr(eager.scorer, "train", train)
    computed = []
    variance = torch.Tensor.var
    monkeypatch.setattr(torch.Tensor, "var", lambda *args, **kw: computed.append(1) or variance(*args, **kw))
    for seed in range(3):
        batch = transitions(12, seed)
        computed.clear()
        rewards = lazy.rewards_and_update(batch).rewards
        assert len(computed) == (scorer == "error")  # for the rewards, not for the minibatches
        assert torch.equal(rewards, eager.rewards_and_update(batch).rewards)
    assert equal(lazy.state_dict(), eager.state_dict())


def test_registries_refuse_a_name_twice() -> None:
    with pytest.raises(MethodError, match="'icm' twice"):
        register_predictor("icm")
    with pytest.raises(MethodError, match="'gmc' twice"):
        register_scorer("gmc")
    with pytest.raises(MethodError, match=r"letters, .* got 'a\+b'"):
        register_predictor("a+b")
    with pytest.raises(MethodError, match=r"letters, .* got ''"):
        register_scorer("")
    with pytest.raises(MethodError, match=r"expected a scorer out of error, gmc, .* got 'gcm'; did you mean gmc\?"):
        SCORERS.find("gcm")


def test_a_scorer_serves_one_reward() -> None:
    scorer = SignalScorer(headway.GMC())
    generator = torch.Generator().manual_seed(0)
    IntrinsicReward(Forward(VECTOR, DISCRETE, SMALL, generator), scorer)
    with pytest.raises(StateError, match="in use already"):
        IntrinsicReward(Forward(VECTOR, DISCRETE, SMALL, generator), scorer)


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    reward = made("gmc")
    reward.rewards_and_update(transitions(5))
    before = reward.state_dict()
    wider = made("gmc", IntrinsicConfig(hidden=9)).state_dict()
    for state, message in [
        (made("icm+gmc").state_dict(), "expected the state of a reward 'gmc'"),
        (wider, r"scored.0.weight: expected shape \[8, 9\], got \[9, 9\]"),
        ({**before, "schema": 2}, "schema 2"),
    ]:
        with pytest.raises(StateError, match=message):
            reward.load_state_dict(state)
    assert equal(before, reward.state_dict())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 0}, "hidden: expected at least 1, got 0"),
        ({"beta_m": 1.0}, "beta_m: expected a decay rate"),
        ({"floor": 0.0}, "floor: expected a number above 0"),
        ({"floor_unit": "kg"}, "floor_unit: expected one of sample, batch, relative, got 'kg'"),
        ({"train_share": 0.0}, "train_share: expected a share"),
        ({"max_grad_norm": 0.0}, "max_grad_norm: expected a number above 0 or none"),
        ({"icm_inverse_weight": -1.0}, "icm_inverse_weight: expected a number of at least 0"),
    ],
)
def test_settings_without_meaning_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MethodError, match=message):
        IntrinsicConfig(**changes)


def test_settings_travel_as_plain_values() -> None:
    config = IntrinsicConfig(hidden=7)
    assert IntrinsicConfig.from_dict(config.to_dict()) == config
    with pytest.raises(MethodError, match=r"expected fields out of features, .* got widht"):
        IntrinsicConfig.from_dict({"widht": 3})
    assert IntrinsicConfig.paper().floor_unit == "sample"


def test_the_released_training_is_one_step_of_adam() -> None:
    """What the published numbers rest on, whatever the defaults become."""
    released = IntrinsicConfig.released()
    assert (released.epochs, released.minibatches, released.train_share) == (1, 1, 1)
    assert (released.learning_rate, released.max_grad_norm, released.normalise_observations) == (1e-4, 0.5, False)
    assert (released.beta_m, released.beta_v, released.bias_correction) == (0.99, 0.99, True)
    assert (released.features, released.hidden, released.rnd_features) == (64, 256, 512)
    assert replace(released, floor_unit="sample", bias_correction=False) == IntrinsicConfig.paper()


def test_the_released_floor_in_the_unit_of_a_transition() -> None:
    for config, floor in ((IntrinsicConfig.released(), 1e-8 * 2048**2), (IntrinsicConfig.paper(), 1e-8)):
        signal = made("gmc", config).scorer.signal
        assert signal.floor_for(2048) == pytest.approx(floor)
        assert (signal.decay.m, signal.decay.v) == (0.99, 0.99)


def test_the_released_networks_have_the_released_sizes() -> None:
    grid, seven = spaces.Box(0, 255, (8, 8, 4), np.float32), spaces.Discrete(7)

    def sizes(module: torch.nn.Module) -> list[tuple[int, ...]]:
        return [tuple(p.shape) for name, p in module.named_parameters() if name.endswith("weight")]

    forward = made("forward", RELEASED, observations=grid, actions=seven).predictor
    assert sizes(forward.scored) == [(256, 263), (256, 256), (256, 256)]
    icm = made("icm", RELEASED, observations=grid, actions=seven).predictor
    assert sizes(icm.encoder) == [(32, 4, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3), (64, 4096)]
    assert sizes(icm.inverse) == [(256, 128), (7, 256)]
    assert sizes(icm.scored) == [(256, 71), (64, 256)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"actions": np.zeros(2)}, r"the same number .* obs \[3, 6\], actions \[2\]"),
        ({"next_obs": np.zeros((3, 5))}, r"expected next_obs of shape \[3, 6\], as obs, got \[3, 5\]"),
        ({"terminated": np.array(True)}, "the same number"),
        ({"obs": np.zeros((0, 6)), "actions": np.zeros(0), "next_obs": np.zeros((0, 6))}, "got none"),
    ],
)
def test_transitions_that_do_not_fit_together(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(MethodError, match=message):
        Transitions(**{"obs": np.zeros((3, 6)), "actions": np.zeros(3), "next_obs": np.zeros((3, 6)), **fields})


def test_observations_of_another_shape_than_the_space() -> None:
    batch = Transitions(np.zeros((3, 7)), np.zeros(3), np.zeros((3, 7)))
    with pytest.raises(MethodError, match=r"got \[7\]"):
        made("icm").rewards(batch)


def test_a_real_environment() -> None:
    env = gymnasium.make_vec("CartPole-v1", num_envs=3)
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    reward = make_reward("icm+gmc", env.single_observation_space, env.single_action_space)
    assert reward is not None
    for _ in range(3):
        actions = env.action_space.sample()
        next_obs, *_ = env.step(actions)
        result = reward.rewards_and_update(Transitions(obs, actions, next_obs))
        obs = next_obs
    assert (result.rewards > 0).all()
    env.close()


@pytest.mark.parametrize("name", ["obs", "actions", "next_obs"])
def test_numbers_that_are_none_are_refused_and_ruin_nothing(name: str) -> None:
    reward = make_reward("icm+gmc", VECTOR, CONTINUOUS, SMALL)
    batch = transitions(8, 0, VECTOR, CONTINUOUS)
    reward.rewards_and_update(batch)
    before = copy.deepcopy(reward.state_dict())
    spoiled = getattr(batch, name).clone()
    spoiled[3] = math.nan
    for act in (reward.rewards_and_update, reward.rewards, reward.update):
        with pytest.raises(MethodError, match=f"{name}: expected finite numbers, got NaN or infinity"):
            act(replace(batch, **{name: spoiled}))
    torch.testing.assert_close(reward.state_dict()["predictor"], before["predictor"], rtol=0, atol=0)
    assert reward.rewards(batch).isfinite().all()


def test_what_is_no_transition_is_refused() -> None:
    reward = make_reward("icm+gmc", VECTOR, DISCRETE, SMALL)
    batch = transitions(8, 0, VECTOR, DISCRETE)
    with pytest.raises(MethodError, match="got tuple"):
        reward.rewards((batch.obs, batch.actions, batch.next_obs))
    with pytest.raises(MethodError, match=r"expected actions from 0 to \d, got 90 to"):
        reward.rewards(replace(batch, actions=batch.actions + 90))
