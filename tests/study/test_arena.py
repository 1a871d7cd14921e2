"""The arena: calibration, metrics, all methods in all kinds of spaces, exact resume, unknown names."""

from __future__ import annotations

import copy
import itertools
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headway.errors import SpecError, UsageError
from headway.rl.envs.make_room import ROOMS as MADE
from headway.rl.envs.make_room import make_room
from headway.rl.episodes import Transitions
from headway.runs import RunSpec, RunStore, State
from headway.runs.experiments import Context
from headway.study import arena
from headway.study.protocols.arena import METHODS, ROOMS, ArenaProtocol
from headway.study.requests import ArenaRequest
from tests.study.test_doorkey import ROOT, equal_weights, machine_free, weights

SMALL = ArenaProtocol().replaced(num_envs=4, rollout_steps=16, minibatch_size=32, steps=128)


def make(room: str, method: str, protocol: ArenaProtocol = SMALL) -> arena.ArenaPPO:
    (spec,) = arena.specs([room], [method], [0], protocol, "standard")
    return arena.make(spec, Context())


def one(rollouts: int) -> RunSpec:
    steps = rollouts * SMALL.num_envs * SMALL.ppo.rollout_steps
    return arena.specs(["house-remote"], ["rnd+gmc"], [0], SMALL, "standard", steps)[0]


@pytest.mark.slow
def test_killed_at_random_instants_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """SIGKILL, many times; metrics and final weights come out bit for bit."""
    command = [sys.executable, "-m", "tests.runs.kills", str(tmp_path), "8", "0", "arena"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) >= 3, "expected the run to be killed a few times"
    spec = one(rollouts=12)
    whole, killed = RunStore(tmp_path / "whole"), RunStore(tmp_path / "killed")
    assert killed.record(spec.run_id).state is State.DONE
    assert repr(machine_free(killed, spec)) == repr(machine_free(whole, spec))
    assert equal_weights(weights(tmp_path / "whole", spec), weights(tmp_path / "killed", spec))


def test_the_protocol_names_the_rooms_that_there_are() -> None:
    assert tuple(ROOMS) == MADE


@pytest.mark.slow
@pytest.mark.parametrize("room", ["house-button", "doorkey-5-tv", "pointmass-tv"])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_goes_on_exactly_from_a_state(room: str, method: str) -> None:
    ppo = make(room, method)
    ppo.iterate()
    state = copy.deepcopy(ppo.state_dict())
    expected = ppo.iterate()
    other = make(room, method)
    other.load_state_dict(state)
    found = other.iterate()
    assert expected is not None
    assert found is not None
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == value or (math.isnan(found[name]) and math.isnan(value)), name


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_can_be_learned_in(room: str) -> None:
    metrics = make(room, "rnd").iterate()
    assert metrics is not None
    assert 0 < metrics["covered"] <= 1
    assert math.isfinite(metrics["value_loss"])


def test_calibration_is_the_mean_size_of_a_bonus_of_its_own() -> None:
    ppo = make("house-remote", "rnd")
    before = copy.deepcopy(ppo.reward.state_dict()["predictor"])  # type: ignore[union-attr]
    ppo._warm_up()
    assert ppo.factor > 0
    after = ppo.reward.state_dict()["predictor"]  # type: ignore[union-attr]
    assert all((before[name] == after[name]).all() for name in before), "the bonus of the run is untouched"
    metrics = ppo.iterate()
    assert metrics is not None
    assert metrics["bonus_mean"] * 1 > 0


def test_the_bonus_is_centred_and_measured_apart_in_the_noise() -> None:
    ppo = make("house-remote", "rnd")
    seen = {}
    intrinsic = ppo._intrinsic
    ppo._intrinsic = lambda *given: seen.setdefault("value", (given, intrinsic(*given)))[1]  # type: ignore[method-assign]
    metrics = ppo.iterate()
    assert metrics is not None
    (rollout, scored, _), rewards = seen["value"]
    bonus = ppo.factor * scored[rollout.valid]
    assert abs(rewards.sum()) < 1e-9
    on = rollout.noise_on[rollout.valid]
    assert metrics["bonus_noise"] == pytest.approx(bonus[on].mean())
    assert metrics["bonus_quiet"] == pytest.approx(bonus[~on].mean())
    spread = ppo.config.intrinsic_scale * (bonus - bonus.mean())
    np.testing.assert_allclose(rewards[rollout.valid], spread)


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(SpecError, match=r"house-button.*chain-tv"):
        arena.specs(["hose"], ["ppo"], [0], SMALL, "standard")
    with pytest.raises(SpecError, match=r"disagreement.*got 'disagree"):
        arena.specs(["chain"], ["disagree"], [0], SMALL, "standard")
    with pytest.raises(UsageError, match="standard, long"):
        ArenaRequest(preset="short").specs()


def test_the_quick_arena_has_six_methods_four_rooms_and_two_seeds() -> None:
    specs = ArenaRequest.read({"quick": True}).specs()
    found = {(spec.condition, spec.method, spec.seed) for spec in specs}
    rooms, methods, seeds = (set(each) for each in zip(*found, strict=True))
    assert (len(rooms), len(methods), len(seeds)) == (4, 6, 2)
    assert found == set(itertools.product(rooms, methods, seeds))
    asked = ArenaRequest.read({"quick": True, "seeds": "0:3"}).specs()
    assert {spec.seed for spec in asked} == {0, 1, 2}
    assert {spec.seed for spec in ArenaRequest(room=("chain",), method=("ppo",)).specs()} == {0, 1, 2}


def test_the_size_of_a_bonus_is_its_mean_over_the_second_half_of_the_calibration() -> None:
    class Paying:
        def __init__(self) -> None:
            self.sizes = iter((1.0, 1.0, -2.0, 4.0))

        def rewards_and_update(self, batch: Transitions) -> SimpleNamespace:
            return SimpleNamespace(rewards=torch.full((len(batch.obs),), next(self.sizes)))

    protocol = SMALL.replaced(calibration_rollouts=4)
    assert arena.mean_size(make_room("house-none", 4), Paying(), protocol, seed=0) == 3.0  # type: ignore[arg-type]
