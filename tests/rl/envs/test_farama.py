"""Farama's environments behind the same interface: against Gymnasium's own vectorisation."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

from headway.errors import EnvError
from headway.rl import make_env
from headway.rl.envs.farama import MiniGridVectorEnv, minigrid_ids

IDS, VIEWS = ("MiniGrid-Empty-5x5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0"), ("full", "partial")
PAIRS = [(IDS[i], mode, VIEWS[(i + m) % 2]) for i in range(2) for m, mode in enumerate(AutoresetMode)]
"""Every two of environment, mode and view."""


def gymnasiums_own(env_id: str, count: int, view: str, mode: AutoresetMode) -> SyncVectorEnv:
    def make() -> gymnasium.Env[Any, Any]:
        env = gymnasium.make(env_id)
        return ImgObsWrapper(FullyObsWrapper(env) if view == "full" else env)

    return SyncVectorEnv([make] * count, autoreset_mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "mode", "view"), PAIRS)
def test_agrees_with_gymnasium_in_every_mode(env_id: str, mode: AutoresetMode, view: str) -> None:
    count = 3
    ours = MiniGridVectorEnv(env_id, count, seed=5, view=view, autoreset_mode=mode)
    theirs = gymnasiums_own(env_id, count, view, mode)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    expected, _ = theirs.reset(seed=list(ours._seeds))
    assert np.array_equal(ours.reset()[0], expected)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(250):
        actions = rng.integers(0, ours.single_action_space.n, count)
        obs, *outcome, infos = ours.step(actions)
        wanted, *other, other_infos = theirs.step(actions)
        assert np.array_equal(obs, wanted)
        assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(outcome, other, strict=True))
        over = outcome[1] | outcome[2]
        ends += int(over.sum())
        assert ("final_obs" in infos) == ("final_obs" in other_infos)
        if "final_obs" in infos:
            assert np.array_equal(infos["_final_obs"], other_infos["_final_obs"])
            assert np.array_equal(infos["_final_info"], other_infos["_final_info"])
            for a, b in zip(infos["final_obs"], other_infos["final_obs"], strict=True):
                assert (a is None) == (b is None)
                assert np.array_equal(a, b)
        if mode is AutoresetMode.DISABLED and over.any():
            obs, _ = ours.reset(options={"reset_mask": over})
            assert np.array_equal(obs, theirs.reset(options={"reset_mask": over})[0])
    assert ends > 2
    ours.close()
    theirs.close()


def test_an_environment_does_not_depend_on_how_many_others_there_are() -> None:
    few, many = (MiniGridVectorEnv("MiniGrid-DoorKey-5x5-v0", count, seed=2) for count in (1, 3))
    assert np.array_equal(few.reset()[0], many.reset()[0][:1])
    assert not np.array_equal(many.grids()[0], many.grids()[1])
    rng = np.random.default_rng(0)
    for _ in range(300):
        actions = rng.integers(0, 7, 3)
        assert np.array_equal(few.step(actions[:1])[0], many.step(actions)[0][:1])


def test_grids_are_whole_also_in_partial_view() -> None:
    whole, part = (
        make_env("MiniGrid-DoorKey-8x8-v0", 2, backend="minigrid", view=view) for view in ("full", "partial")
    )
    obs, _ = whole.reset()
    seen, _ = part.reset()
    assert seen.shape == (2, 7, 7, 3)
    assert np.array_equal(part.env.grids(), obs)
    assert part.render()[0].shape == (128, 128, 3)


def test_rooms_that_are_not_square_keep_faramas_axes() -> None:
    obs, _ = make_env("MiniGrid-Unlock-v0", backend="minigrid").reset()
    theirs = FullyObsWrapper(gymnasium.make("MiniGrid-Unlock-v0"))
    assert obs.shape[1:] == theirs.observation_space["image"].shape == (11, 6, 3)


def test_an_unknown_view_is_refused() -> None:
    with pytest.raises(EnvError, match="view among full, partial, got 'half'"):
        MiniGridVectorEnv("MiniGrid-DoorKey-5x5-v0", view="half")


def test_ids_are_those_of_minigrid() -> None:
    ids = minigrid_ids()
    assert {f"MiniGrid-DoorKey-{n}x{n}-v0" for n in (5, 6, 8, 16)} <= set(ids)
    assert "CartPole-v1" not in ids
