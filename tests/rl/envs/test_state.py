"""Saved and loaded environments go on bit for bit, on every backend, with and without noise, in every mode."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import StateError
from headway.rl import make_env
from headway.rl.envs.farama import MiniGridVectorEnv
from headway.rl.envs.noise import GridNoise

ID = "MiniGrid-DoorKey-5x5-v0"
MODES = ("same_step", "next_step", "disabled")


class Player:
    """Plays at random, and resets where it has to."""

    def __init__(self, env: GridNoise, seed: int = 0) -> None:
        self.env = env
        self.rng = np.random.default_rng(seed)
        self.over = np.zeros(env.num_envs, dtype=bool)
        self.disabled = env.metadata["autoreset_mode"].name == "DISABLED"

    def play(self, steps: int) -> list[bytes]:
        """Everything that the environment gives, as bytes."""
        given: list[bytes] = []
        for _ in range(steps):
            if self.disabled and self.over.any():
                given += flat(self.env.reset(options={"reset_mask": self.over}))
            outcome = self.env.step(self.rng.choice([0, 1, 2, 2, 2, 3, 5], self.env.num_envs) % self.count)
            self.over = outcome[2] | outcome[3]
            given += flat(outcome)
        return given

    @property
    def count(self) -> int:
        return int(self.env.single_action_space.n)


def flat(value: Any) -> list[bytes]:
    if isinstance(value, dict):
        return [each for key in sorted(value) for each in (key.encode(), *flat(value[key]))]
    if isinstance(value, tuple):
        return list(itertools.chain.from_iterable(map(flat, value)))
    if value is None:
        return [b"none"]
    if value.dtype == object:
        return list(itertools.chain.from_iterable(map(flat, value)))
    return [str(value.dtype).encode(), value.tobytes()]


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(state))


def through_torch(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("noise", ["none", "door"])
@pytest.mark.parametrize(("backend", "view"), [("vector", "full"), ("minigrid", "full"), ("minigrid", "partial")])
def test_goes_on_bit_for_bit(backend: str, view: str, noise: str, mode: str) -> None:
    def make(seed: int) -> GridNoise:
        return make_env(ID, 2, noise, backend, seed, view, noise_channel=True, autoreset_mode=mode)

    env = make(1)
    player = Player(env)
    env.reset()
    for before, after in ((40, 10), (195, 10), (5, 20)):  # an episode is truncated after 250 steps
        player.play(before)
        state, over, rng = env.state_dict(), player.over.copy(), player.rng.bit_generator.state
        picture = env.render()
        other = make(99)
        other.load_state_dict(through_torch(through_json(state)))
        assert all(np.array_equal(a, b) for a, b in zip(other.render(), picture, strict=True))
        second = Player(other)
        second.over, second.rng.bit_generator.state = over, rng
        assert second.play(after) == player.play(after)
    assert flat(other.reset()) == flat(env.reset()), "the random streams too"


@pytest.mark.parametrize("mode", MODES)
def test_saved_at_any_step_goes_on_bit_for_bit(mode: str) -> None:
    env, other = (make_env(ID, 3, "door", seed=seed, autoreset_mode=mode) for seed in (1, 2))
    env.reset()
    player, second = Player(env), Player(other)
    for _ in range(300):
        second.over, second.rng.bit_generator.state = player.over.copy(), player.rng.bit_generator.state
        other.load_state_dict(through_json(env.state_dict()))
        assert second.play(1) == player.play(1)


def test_loading_goes_back_in_the_same_environment() -> None:
    for backend in ("vector", "minigrid"):
        env = make_env(ID, 2, "door", backend)
        env.reset()
        player = Player(env)
        player.play(20)
        saved, rng = env.state_dict(), player.rng.bit_generator.state
        first = player.play(60)
        env.load_state_dict(saved)
        player.rng.bit_generator.state = rng
        assert player.play(60) == first


def test_a_partial_reset_after_loading_shows_the_noise_that_was_there() -> None:
    def make() -> GridNoise:
        return make_env(ID, 8, "door", autoreset_mode="disabled")

    env, other = make(), make()
    env.reset()
    player = Player(env)
    while not env._on[1:].any():
        player.play(1)
    other.load_state_dict(through_json(env.state_dict()))
    mask = np.arange(8) == 0
    assert flat(env.reset(options={"reset_mask": mask})) == flat(other.reset(options={"reset_mask": mask}))


@pytest.mark.parametrize("backend", ["vector", "minigrid"])
def test_saved_before_the_first_reset(backend: str) -> None:
    env, other = make_env(ID, 2, "door", backend, seed=1), make_env(ID, 2, "door", backend, seed=2)
    other.load_state_dict(through_json(env.state_dict()))
    assert flat(env.reset()) == flat(other.reset())


@pytest.mark.parametrize(
    "env_id",
    [
        "BabyAI-GoToImpUnlock-v0",  # instructions and what they refer to
        "MiniGrid-Dynamic-Obstacles-5x5-v0",  # draws in every step
        "MiniGrid-Fetch-5x5-N2-v0",  # a target, and a mission that names it
        "MiniGrid-KeyCorridorS3R2-v0",  # rooms, doors, an object that has to be carried
        "MiniGrid-MemoryS7-v0",  # places of success and failure
        "MiniGrid-LockedRoom-v0",
        "MiniGrid-ObstructedMaze-1Dlhb-v0",  # boxes with keys in them
        "MiniGrid-PutNear-6x6-N2-v0",
        "MiniGrid-RedBlueDoors-6x6-v0",
    ],
)
def test_environments_of_every_kind_can_be_saved(env_id: str) -> None:
    env, other = (GridNoise(MiniGridVectorEnv(env_id, seed=seed)) for seed in (1, 2))
    env.reset()
    player = Player(env)
    player.play(12)
    other.load_state_dict(through_json(env.state_dict()))
    second = Player(other)
    second.rng.bit_generator.state = player.rng.bit_generator.state
    assert second.play(6) == player.play(6)
    assert flat(other.reset()) == flat(env.reset())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_envs": 3}, "'num_envs': 3.*got that of.*'num_envs': 2"),
        ({"env_id": "MiniGrid-DoorKey-6x6-v0"}, "6x6.*got that of.*5x5"),
        ({"autoreset_mode": "next_step"}, "NextStep.*got that of.*SameStep"),
        ({"backend": "minigrid"}, "MiniGridVectorEnv.*got that of.*DoorKeyVectorEnv"),
        ({"noise": "none"}, "state of GridNoise, got that of DoorNoise"),
    ],
)
def test_the_state_of_another_environment_is_refused(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"env_id": ID, "num_envs": 2, "noise": "door"}
    env = make_env(**given)
    env.reset()
    with pytest.raises(StateError, match=message):
        make_env(**(given | change)).load_state_dict(env.state_dict())


def test_views_are_told_apart() -> None:
    env = make_env(ID, backend="minigrid", view="partial")
    env.reset()
    with pytest.raises(StateError, match="'view': 'full'"):
        make_env(ID, backend="minigrid").load_state_dict(env.state_dict())


def test_an_environment_changed_from_outside_is_noticed() -> None:
    env = make_env(ID, backend="minigrid")
    env.reset()
    env.env.envs[0].unwrapped.agent_dir = (env.env.envs[0].unwrapped.agent_dir + 1) % 4
    with pytest.raises(StateError, match="expected the episode to come out as it was saved, got another one"):
        make_env(ID, backend="minigrid").load_state_dict(env.state_dict())
