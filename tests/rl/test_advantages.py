"""Generalised advantage estimation against cases computed by hand, and against its definition as a sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.rl.learning import advantages, onward_values


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64).reshape(-1, 1)


def flags(*values: int) -> np.ndarray:
    return np.array(values, dtype=bool).reshape(-1, 1)


def test_three_steps_by_hand() -> None:
    """gamma 1/2, lambda 1/2; no episode ends, and the value after the rollout is 8.

    delta = 1 + 4/2 - 2 = 1, 2 + 6/2 - 4 = 1, 3 + 8/2 - 6 = 1; A = 1, 1 + 1/4, 1 + 1/4 * 5/4.
    """
    never = flags(0, 0, 0)
    found = advantages(column(1, 2, 3), column(2, 4, 6), column(4, 6, 8), never, never, 0.5, 0.5)
    assert found.ravel().tolist() == [1.3125, 1.25, 1.0]


def test_an_end_for_good_by_hand() -> None:
    """The second step ends the episode: delta = 1, 2 - 4 = -2, 1; nothing of the third step reaches the others."""
    end = flags(0, 1, 0)
    found = advantages(column(1, 2, 3), column(2, 4, 6), column(4, 99, 8), end, end, 0.5, 0.5)
    assert found.ravel().tolist() == [1 - 0.25 * 2, -2.0, 1.0]


def test_an_episode_that_is_cut_off_by_hand() -> None:
    """The value 10 of its last observation counts: delta = 1, 2 + 10/2 - 4 = 3, 1; still nothing of the third step."""
    found = advantages(column(1, 2, 3), column(2, 4, 6), column(4, 10, 8), flags(0, 0, 0), flags(0, 1, 0), 0.5, 0.5)
    assert found.ravel().tolist() == [1 + 0.25 * 3, 3.0, 1.0]


def test_environments_do_not_mix() -> None:
    rng = np.random.default_rng(0)
    rewards, values, following = rng.normal(size=(3, 6, 4))
    ended = rng.random((6, 4)) < 0.3
    terminated = ended & (rng.random((6, 4)) < 0.5)
    found = advantages(rewards, values, following, terminated, ended, 0.9, 0.8)
    for env in range(4):
        own = (each[:, [env]] for each in (rewards, values, following, terminated, ended))
        assert np.array_equal(advantages(*own, 0.9, 0.8), found[:, [env]])


@given(st.integers(0, 2**32 - 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 12))
def test_it_is_the_sum_that_defines_it(seed: int, gamma: float, gae_lambda: float, steps: int) -> None:
    """A_t = sum over k of (gamma lambda)^k delta_{t+k}, up to the end of the episode."""
    rng = np.random.default_rng(seed)
    rewards, values, following = rng.normal(size=(3, steps, 1))
    ended = rng.random((steps, 1)) < 0.3
    terminated = ended & (rng.random((steps, 1)) < 0.5)
    found = advantages(rewards, values, following, terminated, ended, gamma, gae_lambda)
    for start in range(steps):
        total, weight = 0.0, 1.0
        for step in range(start, steps):
            following_value = 0.0 if terminated[step, 0] else following[step, 0]
            total += weight * (rewards[step, 0] + gamma * following_value - values[step, 0])
            weight *= gamma * gae_lambda
            if ended[step, 0]:
                break
        assert found[start, 0] == pytest.approx(total, abs=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 10))
def test_one_more_unit_of_reward(seed: int, steps: int) -> None:
    """It adds (gamma lambda)^k to the advantage k steps before, within the episode, and nothing anywhere else."""
    rng = np.random.default_rng(seed)
    rewards, values, following = rng.normal(size=(3, steps, 1))
    ended = rng.random((steps, 1)) < 0.3
    at = int(rng.integers(steps))
    more = rewards.copy()
    more[at] += 1
    before, after = (advantages(r, values, following, ended, ended, 0.9, 0.8) for r in (rewards, more))
    expected = np.zeros(steps)
    for step in range(at, -1, -1):
        if step < at and ended[step, 0]:
            break
        expected[step] = 0.72 ** (at - step)
    assert (after - before).ravel() == pytest.approx(expected, abs=1e-12)


def test_a_step_without_a_transition_is_passed_over() -> None:
    """As if it were not there, whatever stands in it."""
    valid = flags(1, 0, 1)
    ended = flags(1, 0, 0)
    found = advantages(column(1, 77, 3), column(2, 77, 6), column(4, 77, 8), flags(0, 0, 0), ended, 0.5, 0.5, valid)
    assert found[[0, 2], 0].tolist() == [1.0, 1.0]
    joined = advantages(
        column(1, 77, 3), column(2, 77, 6), column(6, 77, 8), flags(0, 0, 0), flags(0, 0, 0), 0.5, 0.5, valid
    )
    alone = advantages(column(1, 3), column(2, 6), column(6, 8), flags(0, 0), flags(0, 0), 0.5, 0.5)
    assert np.array_equal(joined[[0, 2]], alone)


def test_what_comes_next_if_episodes_do_not_count() -> None:
    values, last = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]]), np.array([4.0, 8.0])
    valid = np.array([[1, 1], [0, 1], [1, 1]], dtype=bool)
    assert onward_values(values, last, valid).tolist() == [[3.0, 6.0], [3.0, 7.0], [4.0, 8.0]]
