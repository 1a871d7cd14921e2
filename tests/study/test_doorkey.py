"""The DoorKey experiment, end to end on small grids with tiny networks."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from headway.errors import SpecError
from headway.rl import make_env
from headway.rl.methods import METHODS
from headway.runs import RunSpec, RunStore, State
from headway.runs.experiments import WEIGHTS_FILE, Context, Stopped
from headway.study import doorkey
from headway.study.protocols.minigrid import ExplorationProtocol
from headway.study.resumable import load_state

ROOT = Path(__file__).parent.parent.parent
TINY = ExplorationProtocol.quick().replaced(
    num_envs=4,
    rollout_steps=16,
    minibatch_size=32,
    epochs=2,
    channels=(4,),
    hidden=(8,),
    predictor_hidden=16,
    rnd_features=16,
    normalise_intrinsic=True,
    return_window=2,
)


def one(
    method: str = "icm+gmc", noise: str = "door", rollouts: int = 3, seed: int = 0, protocol: Any = TINY
) -> RunSpec:
    steps = rollouts * protocol.num_envs * protocol.ppo.rollout_steps
    return doorkey.specs([method], [noise], [seed], protocol, "quick", steps=steps)[0]


def carry_out(folder: Path, spec: RunSpec, context: Context | None = None) -> dict[str, list]:
    """The metrics without those that depend on the machine."""
    store = RunStore(folder)
    with store.lock(spec) as run:
        doorkey.run(run, context or Context())
    return machine_free(store, spec)


def machine_free(store: RunStore, spec: RunSpec) -> dict[str, list]:
    rows = dict(store.metrics(spec.run_id))
    assert all(speed > 0 for speed in rows.pop("steps_per_second"))
    return rows


def weights(folder: Path, spec: RunSpec) -> dict[str, dict[str, torch.Tensor]]:
    return torch.load(io.BytesIO(RunStore(folder).read_file(spec.run_id, "final.pt")), weights_only=True)


def equal_weights(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal_weights(one[name], other[name]) for name in one)
    return one is other is None or torch.equal(one, other)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_logs(tmp_path: Path, method: str) -> None:
    spec = one(method)
    store = RunStore(tmp_path)
    carry_out(tmp_path, spec)
    rows = dict(store.metrics(spec.run_id))
    assert tuple(rows) == doorkey.COLUMNS
    assert rows["env_steps"] == [64, 128, 192]
    pays = method != "ppo"
    assert all(math.isnan(value) != pays for value in rows["predictor_loss"])
    assert all(math.isnan(value) == ("icm" not in method) for value in rows["inverse_loss"])
    assert all(0 <= share <= 1 for share in rows["noise_time_share"])
    assert any(value > 0 for value in rows["intrinsic_mean"]) == pays
    assert all(0 < value <= math.log(7) + 1e-6 for value in rows["entropy"])


def test_the_noise_is_where_it_should_be(tmp_path: Path) -> None:
    many = TINY.replaced(num_envs=16)
    quiet = carry_out(tmp_path, one("gmc", "none", 2, protocol=many))
    noisy = carry_out(tmp_path, one("gmc", "door", 2, protocol=many))
    assert quiet["noise_time_share"] == [0, 0]
    assert quiet["noise_reward_share"][1] == 0
    assert 0 < noisy["noise_time_share"][1] < 1
    assert 0 < noisy["noise_reward_share"][1] < 1


def test_the_same_spec_gives_the_same_numbers_with_any_number_of_threads(tmp_path: Path) -> None:
    first = carry_out(tmp_path / "a", one())
    assert repr(carry_out(tmp_path / "b", one(), Context(threads=2))) == repr(first)
    assert repr(carry_out(tmp_path / "c", one(seed=1))) != repr(first)


@pytest.mark.parametrize("method", ["ppo", "icm+gmc"])
def test_stopped_in_mid_rollout_and_resumed_equals_uninterrupted(tmp_path: Path, method: str) -> None:
    spec = one(method, rollouts=4)
    whole = carry_out(tmp_path / "whole", spec, Context(keep_weights=True))
    store = RunStore(tmp_path / "parts")
    attempts = 0
    for _ in range(20):
        asked = iter(range(100_000))
        with store.lock(spec) as run:
            try:
                doorkey.run(run, Context(keep_weights=True, should_stop=lambda asked=asked: next(asked) >= 45))
            except Stopped as stopped:
                run.interrupt(str(stopped))
        attempts += 1
        if store.record(spec.run_id).state is State.DONE:
            break
        assert store.record(spec.run_id).state is State.INTERRUPTED
    assert attempts >= 3
    assert repr(machine_free(store, spec)) == repr(whole)
    assert equal_weights(weights(tmp_path / "whole", spec), weights(tmp_path / "parts", spec))


def test_what_was_saved_on_a_gpu_goes_on_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = one("icm+gmc", rollouts=3)
    whole = carry_out(tmp_path / "whole", spec)
    store = RunStore(tmp_path / "parts")
    asked = iter(range(100_000))
    with monkeypatch.context() as patch, store.lock(spec) as run:
        patch.setattr("torch.serialization.location_tag", lambda storage: "cuda:0")  # as for tensors on a GPU
        with pytest.raises(Stopped):
            doorkey.run(run, Context(should_stop=lambda: next(asked) >= 45))
        run.interrupt("asked to")
    assert repr(carry_out(tmp_path / "parts", spec)) == repr(whole)


def test_stopped_before_its_first_rollout_it_starts_again(tmp_path: Path) -> None:
    spec = one(rollouts=1)
    store = RunStore(tmp_path)
    for _ in range(2):
        with store.lock(spec) as run, pytest.raises(Stopped):
            doorkey.run(run, Context(should_stop=lambda: True))
    assert carry_out(tmp_path, spec)["env_steps"] == [64]


@pytest.mark.slow
def test_killed_at_random_instants_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """SIGKILL, many times; metrics and final weights come out bit for bit."""
    command = [sys.executable, "-m", "tests.runs.kills", str(tmp_path), "8", "0", "doorkey"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) >= 3, "expected the run to be killed a few times"
    spec = one(rollouts=12)
    whole, killed = RunStore(tmp_path / "whole"), RunStore(tmp_path / "killed")
    assert killed.record(spec.run_id).state is State.DONE
    assert repr(machine_free(killed, spec)) == repr(machine_free(whole, spec))
    assert equal_weights(weights(tmp_path / "whole", spec), weights(tmp_path / "killed", spec))


def test_farama_s_environments_resume_too(tmp_path: Path) -> None:
    spec = one("gmc", rollouts=2, protocol=TINY.replaced(backend="minigrid", num_envs=2))
    whole = carry_out(tmp_path / "whole", spec)
    store = RunStore(tmp_path / "parts")
    asked = iter(range(100_000))
    with store.lock(spec) as run, pytest.raises(Stopped):
        doorkey.run(run, Context(should_stop=lambda: next(asked) >= 30))
    assert repr(carry_out(tmp_path / "parts", spec)) == repr(whole)


def test_the_policy_and_what_it_rests_on_stay_with_the_run(tmp_path: Path) -> None:
    spec = one("ppo", rollouts=1)
    carry_out(tmp_path, spec)
    store = RunStore(tmp_path)
    assert json.loads(store.read_file(spec.run_id, "provenance.json"))["torch"] == torch.__version__
    policy = doorkey.load_policy(spec, load_state(store.read_file(spec.run_id, doorkey.POLICY_FILE)))
    env = make_env("MiniGrid-DoorKey-5x5-v0", num_envs=3, noise="door")
    observations, _ = env.reset(seed=0)
    assert policy.choose(observations).shape == (3,)
    assert not (tmp_path / spec.run_id / WEIGHTS_FILE).exists()


def test_reports_tell_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    spec = one("ppo", rollouts=3)
    carry_out(tmp_path, spec, Context(report=lambda step, total, losses: told.append((step, total))))
    assert told == [(64, 192), (128, 192), (192, 192)]
    status = RunStore(tmp_path).record(spec.run_id).status
    assert status is not None
    assert (status.step, status.total) == (192, 192)


def test_the_estimate_is_positive() -> None:
    assert doorkey.estimate(one(), Context()) > 0


# What cannot work is refused before any work starts.


def specs(**changes: Any) -> list[RunSpec]:
    options: dict[str, Any] = {
        "methods": ["ppo"],
        "noises": ["none"],
        "seeds": [0],
        "protocol": TINY,
        "preset": "quick",
    }
    return doorkey.specs(**{**options, **changes})


def test_specs_are_all_combinations() -> None:
    made = specs(methods=["ppo", "icm"], noises=["none", "door"], seeds=range(3))
    assert len({spec.run_id for spec in made}) == 12
    assert {(spec.condition, spec.experiment) for spec in made} == {("none", "doorkey"), ("door", "doorkey")}
    spec = specs(env_id="MiniGrid-DoorKey-6x6", steps=100)[0]
    assert dict(spec.params) == {"env_id": "MiniGrid-DoorKey-6x6-v0", "preset": "quick", "steps": 128}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["ppo", "luck"]}, "expected a method out of ppo, forward, icm, .*got 'luck'"),
        ({"noises": ["window"]}, "expected noise out of none, door, got 'window'"),
        ({"env_id": "MiniGrid-Door"}, "got 'MiniGrid-Door'"),
        ({"steps": 0}, "at least one step, got 0"),
        (
            {
                "env_id": "MiniGrid-Empty-5x5-v0",
                "noises": ["none", "door"],
                "protocol": TINY.replaced(backend="minigrid"),
            },
            "door",
        ),
    ],
)
def test_what_does_not_exist_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        specs(**changes)


class Odd(gymnasium.Env):
    """An environment whose actions have parts with names."""

    observation_space = spaces.Box(0, 1, (5, 5, 3), np.float32)

    def __init__(self, actions: spaces.Space) -> None:
        self.action_space = actions


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (spaces.Dict({"left": spaces.Discrete(2)}), "expected an action space .* got Dict"),
        (
            spaces.MultiBinary(3),
            "expected an action space out of Discrete, MultiDiscrete, Box for PPO, got MultiBinary",
        ),
    ],
)
def test_an_action_space_that_nobody_can_handle_is_refused(
    monkeypatch: pytest.MonkeyPatch, actions: spaces.Space, message: str
) -> None:
    def make(*arguments: Any, **options: Any) -> Any:
        return SyncVectorEnv([lambda: Odd(actions)], autoreset_mode=AutoresetMode.SAME_STEP)

    monkeypatch.setattr(doorkey, "make_envs", make)
    with pytest.raises(SpecError, match=message):
        specs(methods=["icm"])
