"""The vectorised DoorKey against Farama's, step for step from the same layouts."""

from __future__ import annotations

import gymnasium
import minigrid.core.actions
import minigrid.core.constants
import numpy as np
import pytest

from headway.rl.envs import grids
from headway.rl.envs.doorkey_env import SIZES, DoorKeyVectorEnv
from tests.rl.envs.play import QuickReference, Reference, compare

PLAY = {"random": 1.0, "muddled": 0.7, "solving": 0.0}
"""The share of random actions."""


@pytest.mark.slow
@pytest.mark.parametrize("play", PLAY)
@pytest.mark.parametrize(("size", "episodes"), [(5, 20), (6, 12), (8, 8), (16, 4)])
def test_agrees_with_farama_as_users_make_it(size: int, episodes: int, play: str) -> None:
    if play == "random":
        episodes = {5: 8, 6: 4, 8: 2, 16: 1}[size]
    tally = compare(size, episodes, PLAY[play], parallel=min(4, episodes), seed=1, reference=Reference)
    assert tally.episodes >= episodes
    if play == "solving":
        assert tally.solved == tally.episodes


@pytest.mark.parametrize("play", PLAY)
@pytest.mark.parametrize(("size", "episodes"), [(5, 200), (6, 200), (8, 100), (16, 40)])
def test_agrees_with_farama(size: int, episodes: int, play: str) -> None:
    if play == "random":
        episodes = {5: 100, 6: 60, 8: 30, 16: 10}[size]
    tally = compare(size, episodes, PLAY[play], parallel=min(20, episodes), seed=2)
    assert tally.episodes >= episodes
    if play == "solving":
        assert tally.solved == tally.episodes
    if play == "random" and size > 5:
        assert tally.truncated > 0


@pytest.mark.soak
@pytest.mark.parametrize("play", PLAY)
@pytest.mark.parametrize("size", [5, 6, 8, 16])
def test_agrees_with_farama_over_two_thousand_episodes(size: int, play: str) -> None:
    tally = compare(size, 2000, PLAY[play], parallel=100, seed=3)
    assert tally.episodes >= 2000
    assert tally.solved > 0
    assert (tally.truncated > 0) == (play == "random")


def test_the_quick_reference_shows_what_farama_shows() -> None:
    rng = np.random.default_rng(0)
    quick, plain = QuickReference(5, 7), Reference(5, 7)
    assert np.array_equal(quick.reset(), plain.reset())
    for _ in range(1500):
        action = int(rng.integers(7))
        (image, *rest), (expected, *others) = quick.step(action), plain.step(action)
        assert np.array_equal(image, expected)
        assert rest == others
        if rest[1] or rest[2]:
            assert np.array_equal(quick.reset(), plain.reset())


@pytest.mark.parametrize("env_id", SIZES)
def test_spaces_and_limits_are_those_of_the_registered_environment(env_id: str) -> None:
    theirs, ours = gymnasium.make(env_id), DoorKeyVectorEnv(SIZES[env_id])
    assert ours.max_steps == theirs.unwrapped.max_steps
    assert ours.single_action_space == theirs.action_space
    assert ours.single_observation_space.shape == (theirs.unwrapped.width, theirs.unwrapped.height, 3)
    assert ours.env_id == env_id


def test_codes_are_those_of_minigrid() -> None:
    constants = minigrid.core.constants
    assert {each.name.lower(): each.value for each in grids.Thing} == constants.OBJECT_TO_IDX
    assert {each.name.lower(): each.value for each in grids.Colour} == constants.COLOR_TO_IDX
    assert {each.name.lower(): each.value for each in grids.Door} == constants.STATE_TO_IDX
    assert {each.name.lower(): each.value for each in grids.Action} == {
        each.name: each.value for each in minigrid.core.actions.Actions
    }
    assert [tuple(each) for each in constants.DIR_TO_VEC] == [(1, 0), (0, 1), (-1, 0), (0, -1)]
