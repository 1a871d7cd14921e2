"""The arena: where intrinsic rewards are high, and how far they lead, with the same mean size for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headway.data import load
from headway.errors import EnvError, MethodError, SpecError, StateError
from headway.rl.agent import Policy
from headway.rl.config import PPOConfig
from headway.rl.envs.make_room import make_room
from headway.rl.envs.rooms import PIXELS, Room
from headway.rl.episodes import Episodes
from headway.rl.methods import make_reward, methods_of
from headway.rl.ppo import PPO, Mark, ignore, never
from headway.rl.reward import Reward
from headway.rl.rollout import Rollout, collect
from headway.runs import Run, RunSpec
from headway.runs.experiments import Context, use_common_instructions
from headway.study.doorkey import carry_out, measure
from headway.study.protocols.arena import ArenaProtocol

EXPERIMENT = "arena"
COLUMNS = (
    *("env_steps", "episodes", "episode_return", "goals", "first_goal", "covered"),
    *("bonus_mean", "bonus_noise", "bonus_quiet", "noise_time_share", "factor"),
    *("entropy", "policy_loss", "value_loss", "explained_variance", "predictor_loss", "steps_per_second"),
)
"""The metrics of each rollout; what a method does not have is NaN. Only the last one depends on the machine."""
CALIBRATION_STREAM = 2
Array = npt.NDArray[Any]


class ArenaPPO(PPO):
    """An agent whose bonus is calibrated before its first step, by a function that gives its mean size.

    See `ArenaProtocol`; a reward of None leaves the rewards of the rooms alone.
    """

    def __init__(
        self, env: Room, config: PPOConfig, reward: Reward | None, calibrate: Callable[[], float], **options: Any
    ) -> None:
        super().__init__(env, config, reward, **options)
        self.factor = 1.0
        self._calibrate = calibrate
        self._measured: dict[str, float] = {}

    def iterate(self, should_stop: Callable[[], bool] = never, mark: Mark = ignore) -> dict[str, float] | None:
        """Collect a rollout and learn from it; also measure where the bonus is high, and what is covered."""
        metrics = super().iterate(should_stop, mark)
        if metrics is None:
            return None
        room = {name: float(getattr(self.env, name)) for name in ("covered", "goals", "first_goal")}
        return {**metrics, **self._measured, **room, "factor": self.factor}

    def _warm_up(self) -> None:
        size = self._calibrate()
        if not size > 0:
            expected = "a bonus that is not 0 throughout the calibration"
            raise MethodError(f"expected {expected}, got a mean size of {size}; increase calibration_rollouts")
        self.factor = 1 / size

    def _intrinsic(self, rollout: Rollout, rewards: Array, is_paid: bool) -> Array:
        if not is_paid:
            return rewards
        bonus = self.factor * rewards[rollout.valid]
        noisy = rollout.noise_on[rollout.valid]
        self._measured = {
            "bonus_mean": float(bonus.mean()),
            "bonus_noise": float(bonus[noisy].mean()) if noisy.any() else np.nan,
            "bonus_quiet": float(bonus[~noisy].mean()) if not noisy.all() else np.nan,
        }
        centred = np.zeros(rewards.shape)
        centred[rollout.valid] = bonus - bonus.mean()
        return self.config.intrinsic_scale * centred

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on, the calibration among it."""
        return {**super().state_dict(), "factor": self.factor}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        if "factor" not in state:
            raise StateError("expected the state of a calibrated agent, got one of another kind")
        super().load_state_dict(state)
        self.factor = state["factor"]


def mean_size(env: Room, reward: Reward, protocol: ArenaProtocol, seed: int) -> float:
    """The mean of abs(bonus) per step in the second half of some rollouts of random actions, learned from as ever."""
    generator = torch.Generator().manual_seed(seed)
    policy = Policy(env.single_observation_space, env.single_action_space, protocol.ppo, generator)
    nothing = np.zeros((env.num_envs, policy.head.outputs))
    episodes = Episodes(env)
    episodes.reset(seed=seed)
    sizes = []
    for _ in range(protocol.calibration_rollouts):
        rollout = collect(episodes, lambda seen: nothing, policy.head, protocol.ppo.rollout_steps, generator, never)
        assert rollout is not None  # nobody stops it
        sizes.append(float(reward.rewards_and_update(rollout.transitions()).rewards.double().abs().mean()))
    return float(np.mean(sizes[len(sizes) // 2 :]))


def specs(
    rooms: Iterable[str],
    methods: Iterable[str],
    seeds: Iterable[int],
    protocol: ArenaProtocol,
    preset: str,
    steps: int | None = None,
) -> list[RunSpec]:
    """All combinations, as runs."""
    rooms, methods = list(rooms), list(methods)
    use_common_instructions()  # networks are made here, and torch computes with what it has begun with
    try:
        for room in rooms:
            env = _room(room, 1, 0)
            for method in methods:
                _reward(method, env, protocol, 0)
    except (EnvError, MethodError) as error:
        raise SpecError(str(error)) from error
    params = {"preset": preset, "steps": protocol.steps_for(steps)}
    common: dict[str, Any] = {"experiment": EXPERIMENT, "params": params, "protocol": protocol.to_dict()}
    return [
        RunSpec(condition=room, method=method, seed=seed, **common)
        for seed, room, method in product(seeds, rooms, methods)
    ]


def run(run: Run, context: Context) -> None:
    """Carry out a locked run, from its last checkpoint if it has one."""
    carry_out(run, context, make, COLUMNS)


def estimate(spec: RunSpec, context: Context) -> float:
    """Seconds that a run takes on one core, from its first rollouts."""
    return measure(spec, context, make)


def make(spec: RunSpec, context: Context) -> ArenaPPO:
    """The agent of a run, in its rooms, before its first step."""
    protocol = ArenaProtocol.from_dict(spec.protocol)
    env = _room(spec.condition, protocol.num_envs, spec.seed)

    def calibrate() -> float:
        other = _room(spec.condition, protocol.num_envs, spec.seed)
        trial = _reward(spec.method, other, protocol, spec.seed, context.device)
        assert trial is not None  # only a bonus is calibrated
        seeds = np.random.SeedSequence(spec.seed, spawn_key=(CALIBRATION_STREAM,))
        return mean_size(other, trial, protocol, int(seeds.generate_state(1)[0]))

    reward = _reward(spec.method, env, protocol, spec.seed, context.device)
    return ArenaPPO(
        env, protocol.ppo, reward, calibrate, seed=spec.seed, device=context.device, threads=context.threads, window=64
    )


def _reward(method: str, env: Room, protocol: ArenaProtocol, seed: int, device: str = "cpu") -> Reward | None:
    has_re3 = any(each.bonus == "re3" for each in methods_of(method))
    options = {"capacity": protocol.re3_capacity} if has_re3 else {}
    spaces = env.single_observation_space, env.single_action_space
    return make_reward(method, *spaces, protocol.reward, device, seed, **options)


def _room(name: str, num_envs: int, seed: int) -> Room:
    """A room; one with digits shows the embedded ones in 4x4 pixels [n, 16], with mean 0 and deviation 1 over all."""
    if not name.endswith("digits"):
        return make_room(name, num_envs, seed, None)
    images = load("digits").train.images.astype(np.float64)
    side = int(PIXELS**0.5)
    blocks = images.reshape(len(images), side, images.shape[-2] // side, side, images.shape[-1] // side)
    small = blocks.mean(axis=(2, 4)).reshape(len(images), PIXELS)
    return make_room(name, num_envs, seed, ((small - small.mean()) / small.std()).astype(np.float32))
