"""What a protocol says is what a trial does: actor, draws and tests."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from headway.data import Dataset, Split
from headway.errors import SelectionError
from headway.selection import Actor
from headway.study.controlled_trial import RunningMeans, Trial
from headway.study.protocols.classification import Protocol

SMALL = {"hidden": 8, "actor_hidden": 8, "batch_size": 32, "test_batches": 4}
RELEASED = dataclasses.replace(Protocol.released(), **SMALL)
PAPER = dataclasses.replace(Protocol.paper(), **SMALL)


def dataset(number: int = 200) -> Dataset:
    """Random images; those of the test split are all black."""
    rng = np.random.default_rng(0)
    labels = np.arange(number, dtype=np.int64) % 10
    train = Split(rng.integers(100, 256, (number, 1, 4, 4), dtype=np.uint8), labels)
    test = Split(np.zeros((number, 1, 4, 4), dtype=np.uint8), labels)
    return Dataset("random", train, test, tuple("0123456789"), "0" * 64, "random")


def trial(protocol: Protocol, signal: str = "gmc", condition: str = "noise") -> Trial:
    return Trial(dataset(), condition, signal, protocol, seed=0)


@pytest.mark.parametrize(("condition", "arms"), [("noise", 4), ("curriculum", 10)])
def test_the_actor_is_that_of_the_protocol(condition: str, arms: int) -> None:
    for protocol, inputs in ((RELEASED, arms), (PAPER, 4)):
        actor = trial(protocol, condition=condition).actor
        assert isinstance(actor, Actor)
        assert actor.config.betas == (0.99, 0.999)
        assert actor.config.learning_rate == 1e-5
        assert actor.config.entropy_weight == 0.05
        assert next(actor.policy.parameters()).shape == (8, inputs)


@pytest.mark.parametrize(("condition", "arms"), [("noise", 4), ("curriculum", 10)])
def test_uniform_draws_arms_without_an_actor(condition: str, arms: int) -> None:
    own = trial(RELEASED, "uniform", condition)
    generator = torch.Generator()
    generator.set_state(own._generator.get_state())
    expected = torch.randint(arms, (32,), generator=generator)
    own.train_batch()
    torch.testing.assert_close(own._seen[0][0], expected)
    assert own.run_epoch(lambda: False)["policy_entropy"] == pytest.approx(np.log(arms))
    assert own.state_dict()["actor"] == {}


def test_uniform_with_an_actor_is_what_it_was() -> None:
    own = trial(dataclasses.replace(RELEASED, uniform="actor"), "uniform")
    assert isinstance(own.actor, Actor)
    assert own.actor.config.sources == 4


def test_delta_loss_is_zero_for_two_epochs_and_then_that_of_the_epochs_means() -> None:
    own = trial(RELEASED, "delta_loss")
    means: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    for epoch in range(4):
        while len(own._seen) < own.batches:
            own.train_batch()
        arms, losses, scores = (torch.cat(column).numpy() for column in zip(*own._seen, strict=True))
        if epoch < 2:
            assert not scores.any()
        else:
            change = np.abs(means[-1] - means[-2]) / (counts[-1] + counts[-2]) * 1e5
            np.testing.assert_allclose(scores, change[arms], rtol=1e-4)
        means.append(np.array([losses[arms == arm].mean() for arm in range(4)]))
        counts.append(np.array([(arms == arm).sum() for arm in range(4)]))
        own.run_epoch(lambda: False)


def test_a_test_draws_equal_or_random_arms() -> None:
    equal = trial(PAPER).test()["test_count"]
    assert equal == [32, 32, 32, 32]
    random = trial(RELEASED).test()["test_count"]
    assert sum(random) == 128
    assert random != equal


@pytest.mark.parametrize("images", ["train", "test"])
def test_a_test_shows_images_of_the_split_that_the_protocol_names(images: str) -> None:
    own = trial(dataclasses.replace(PAPER, test_images=images))
    seen: list[torch.Tensor] = []
    own.model.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    own.test()
    is_black = bool((torch.cat(seen) == -1).all())
    assert is_black == (images == "test")


def test_a_test_takes_from_the_stream_of_training_only_if_it_is_shared() -> None:
    for protocol, is_shared in ((RELEASED, True), (PAPER, False)):
        own = trial(protocol)
        before = own.environment.state_dict()["train"]["used"]
        own.test()
        assert (own.environment.state_dict()["train"]["used"] != before) == is_shared


def test_a_test_has_a_sample_of_every_arm_however_small_it_is() -> None:
    own = trial(dataclasses.replace(PAPER, batch_size=4, test_batches=1), condition="curriculum")
    assert own.test()["test_count"] == [1] * 10


def test_training_that_diverges_is_an_error_and_not_a_curriculum() -> None:
    own = trial(dataclasses.replace(RELEASED, learning_rate=1e30), "curiosity")
    with pytest.raises(SelectionError, match="has the training diverged"):
        own.run_epoch(lambda: False)


def test_scores_in_units_of_the_greatest_running_mean() -> None:
    running = RunningMeans(2, "cpu", rate=0.5)
    arms = torch.tensor([0, 0, 1])
    assert running.scale(torch.zeros(3), arms).tolist() == [0.0, 0.0, 0.0]
    running = RunningMeans(2, "cpu", rate=0.5)
    assert running.scale(torch.tensor([1.0, 3.0, 4.0]), arms).tolist() == [0.25, 0.75, 1.0]  # means 2 and 4
    # arm 0: (0.5 * 0.5 * 2 + 0.5 * 8) / 0.75 = 6; arm 1 stays at 4 without samples
    torch.testing.assert_close(running.scale(torch.tensor([8.0]), torch.tensor([0])), torch.tensor([8.0 / 6.0]))


def test_a_trial_with_scaled_scores_resumes() -> None:
    scaled = dataclasses.replace(RELEASED, actor_scores="scaled", floor=1.0, floor_unit="relative")
    one, two = (trial(protocol) for protocol in (scaled, scaled))
    for _ in range(3):
        one.train_batch()
        two.train_batch()
    state = one.state_dict()
    assert state["running"].any()
    resumed = trial(scaled)
    resumed.load_state_dict(state)
    resumed.train_batch()
    two.train_batch()
    assert torch.equal(resumed._seen[-1][2], two._seen[-1][2])
