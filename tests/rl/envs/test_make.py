"""Making environments: what fits together, and what is refused with the way out."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

import headway.rl
from headway.errors import EnvError, MissingExtraError
from headway.rl import env_ids, make_env

ID = "MiniGrid-DoorKey-5x5-v0"


@pytest.mark.parametrize("env_id", env_ids())
@pytest.mark.parametrize("noise", ["none", "door"])
@pytest.mark.parametrize("backend", ["vector", "minigrid"])
def test_every_combination_is_a_vector_environment(env_id: str, noise: str, backend: str) -> None:
    env = make_env(env_id, 2, noise, backend)
    assert isinstance(env, VectorEnv)
    assert env.num_envs == 2
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.render_mode == "rgb_array"
    obs, infos = env.reset()
    size = int(env_id.split("-")[2].split("x")[0])
    assert obs.shape == (2, size, size, 3 + (noise == "door"))
    assert env.observation_space.contains(obs)
    assert env.single_observation_space.contains(obs[0])
    obs, rewards, terminated, truncated, infos = env.step(env.action_space.sample())
    assert env.observation_space.contains(obs)
    assert rewards.dtype == np.float64
    assert terminated.dtype == truncated.dtype == bool
    assert infos["noise_on"].dtype == bool
    env.close()


def test_both_backends_look_alike() -> None:
    vector, farama = make_env(ID, 2), make_env(ID, 2, backend="minigrid")
    assert vector.observation_space == farama.observation_space
    assert vector.action_space == farama.action_space
    (a, infos_a), (b, infos_b) = vector.reset(), farama.reset()
    assert (a.dtype, a.shape, set(infos_a)) == (b.dtype, b.shape, set(infos_b))
    assert all(infos_a[key].dtype == infos_b[key].dtype for key in infos_a)


@pytest.mark.parametrize("mode", ["same_step", "SameStep", "SAME_STEP", AutoresetMode.SAME_STEP])
def test_autoreset_modes_have_several_names(mode: Any) -> None:
    assert make_env(ID, autoreset_mode=mode).metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_without_a_version_the_newest_is_made() -> None:
    assert make_env("MiniGrid-DoorKey-5x5").env.env_id == ID
    name = "MiniGrid-MultiRoom-N4-S5"
    newest = max(each for each in env_ids("minigrid") if each.startswith(f"{name}-v"))
    assert make_env(name, backend="minigrid").env.env_id == newest


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"env_id": "DoorKey"}, r"backend='vector', got 'DoorKey'.*; it has MiniGrid-DoorKey-5x5-v0, .*16x16-v0"),
        ({"env_id": "MiniGrid-Empty-5x5-v0"}, "backend='minigrid' has all of Farama's environments"),
        (
            {"env_id": "MiniGrid-DorKey-8x8-v0", "backend": "minigrid"},
            r"got 'MiniGrid-DorKey-8x8-v0'; did you mean MiniGrid-DoorKey-8x8-v0\?; .*env_ids\('minigrid'\) lists them",
        ),
        ({"env_id": "zzz", "backend": "minigrid"}, r"got 'zzz'; headway.rl.env_ids"),
        ({"noise": "tv"}, "expected noise to be one of none, door, got 'tv'"),
        ({"backend": "jax"}, "expected backend to be one of vector, minigrid, got 'jax'"),
        ({"view": "half", "backend": "minigrid"}, "expected a view among full, partial, got 'half'"),
        ({"view": "partial"}, "view='full' with backend='vector', got 'partial'; use backend='minigrid'"),
        ({"noise": "door", "noise_channel": False}, "noise_channel=False; leave it out"),
        ({"num_envs": 0}, "num_envs to be an integer of 1 or more, got 0"),
        ({"num_envs": 2.0}, "num_envs to be an integer of 1 or more, got 2.0"),
        ({"num_envs": True}, "num_envs to be an integer of 1 or more, got True"),
        ({"seed": -1}, "seed to be an integer of 0 or more, got -1"),
        ({"seed": None}, "seed to be an integer of 0 or more, got None"),
        ({"autoreset_mode": "later"}, "autoreset_mode to be one of next_step, same_step, disabled, got 'later'"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make_env(**({"env_id": ID} | given))


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)
    monkeypatch.setitem(sys.modules, "minigrid.wrappers", None)
    with pytest.raises(MissingExtraError, match=r"minigrid is not installed; run: pip install 'headway-torch\[rl\]'"):
        make_env(ID, backend="minigrid")
    make_env(ID)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtraError, match="gymnasium is not installed"):
        make_env(ID)


def test_ids() -> None:
    assert env_ids() == [f"MiniGrid-DoorKey-{size}x{size}-v0" for size in (5, 6, 8, 16)]
    assert set(env_ids()) < set(env_ids("minigrid"))
    with pytest.raises(EnvError, match="backend to be one of"):
        env_ids("jax")


def test_the_package_gives_its_public_names_on_demand() -> None:
    assert all(getattr(headway.rl, name) is not None for name in headway.rl.__all__)
    assert dir(headway.rl) == sorted(headway.rl.__all__)
    with pytest.raises(AttributeError, match=r"module 'headway.rl' has no attribute 'nothing'"):
        _ = headway.rl.nothing


def test_the_package_and_the_drawing_import_no_optional_package() -> None:
    code = (
        "import sys, headway.rl, headway.rl.envs.grids, headway.rl.envs.make\n"
        "print([each for each in ('gymnasium', 'minigrid', 'torch', 'PIL') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
