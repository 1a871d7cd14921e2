"""The DoorKey experiment: which intrinsic reward helps an agent to explore, and which attracts it to the noise."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import torch

from headway.errors import EnvError, MethodError, MissingExtraError, SpecError, StateError, check_known
from headway.registry import Registry
from headway.rl import make_env
from headway.rl.agent import Policy
from headway.rl.methods import make_reward
from headway.rl.ppo import PPO
from headway.runs import Run, RunSpec
from headway.runs.experiments import Context, use_common_instructions
from headway.study.protocols.minigrid import ExplorationProtocol
from headway.study.resumable import ResumableRun, keep_memory, one_thread, planned_length, seconds_of, state_writer

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from headway.rl.envs.farama import Replayable
except ImportError:
    raise MissingExtraError("gymnasium", "rl") from None

EXPERIMENT = "doorkey"
CONDITIONS = ("none", "door")

COLUMNS = (
    *("env_steps", "episodes", "episode_return", "episode_length"),
    *("policy_loss", "value_loss", "entropy", "clip_fraction", "explained_variance", "approx_kl"),
    *("extrinsic_mean", "extrinsic_std", "intrinsic_mean", "intrinsic_std"),
    *("predictor_loss", "forward_loss", "inverse_loss", "score_mean", "score_std"),
    *("noise_reward_share", "noise_time_share", "steps_per_second"),
)
"""The metrics of each rollout; what a method does not have is NaN. Only the last one depends on the machine."""

Make: TypeAlias = Callable[[RunSpec, Context], PPO]
"""Makes the agent of a run, in its environment, before its first step."""
MakeEnv: TypeAlias = Callable[[], "gymnasium.Env[Any, Any]"]
"""Makes one environment."""
ENVIRONMENTS: Registry[MakeEnv] = Registry("environment", EnvError)
POLICY_FILE = "policy.pt"
CALIBRATION_STEPS = 256


def specs(
    methods: Iterable[str],
    noises: Iterable[str],
    seeds: Iterable[int],
    protocol: ExplorationProtocol,
    preset: str,
    env_id: str | None = None,
    steps: int | None = None,
) -> list[RunSpec]:
    """All combinations, as runs."""
    methods, noises = list(methods), list(noises)
    check_known("noise", noises, CONDITIONS, SpecError)
    if steps is not None and steps < 1:
        raise SpecError(f"expected at least one step, got {steps}")
    env_id = _check(methods, noises, protocol, env_id or protocol.env_id)
    params = {"env_id": env_id, "preset": preset, "steps": protocol.steps_for(steps)}
    common: dict[str, Any] = {"experiment": EXPERIMENT, "params": params, "protocol": protocol.to_dict()}
    return [
        RunSpec(condition=noise, seed=seed, method=method, **common)
        for noise, seed, method in product(noises, seeds, methods)
    ]


def _check(methods: Sequence[str], noises: Sequence[str], protocol: ExplorationProtocol, env_id: str) -> str:
    """Make everything once, so that what cannot work fails before any run starts; returns the full id of the env."""
    use_common_instructions()  # networks are made here, and torch computes with what it has begun with
    try:
        for noise in noises:
            env = make_envs(protocol, env_id, noise, seed=0, num_envs=1)
            observations, actions = env.single_observation_space, env.single_action_space
            Policy(observations, actions, protocol.ppo, torch.Generator())
            for method in methods:
                make_reward(method, observations, actions, protocol.reward)
            env_id = getattr(env.unwrapped, "env_id", env_id)
            env.close()
    except (EnvError, MethodError) as error:
        raise SpecError(str(error)) from error
    return env_id


def run(run: Run, context: Context) -> None:
    """Carry out a locked run, from its last checkpoint if it has one."""
    carry_out(run, context, make, COLUMNS)


def carry_out(run: Run, context: Context, make: Make, columns: Sequence[str]) -> None:
    """Train an agent and keep what it has logged: these columns, of which the last is the speed."""
    keep_memory()
    resumable = ResumableRun(run, context, "numpy", "gymnasium")
    with one_thread():
        ppo = make(run.spec, context)
        try:
            _train(run, ppo, context, resumable, columns)
        finally:
            ppo.close()
        networks = {"policy": ppo.agent.policy, "value": ppo.agent.value, "predictor": ppo.reward and ppo.reward.bonus}
        weights = {name: None if each is None else each.state_dict() for name, each in networks.items()}
        run.save(POLICY_FILE, state_writer(weights["policy"]))
        resumable.finish(weights)


def _train(run: Run, ppo: PPO, context: Context, resumable: ResumableRun, columns: Sequence[str]) -> None:
    """Rollout after rollout; asked to stop in the midst of one, it goes back to where that one began."""
    state, total = resumable.restored(), planned_length(run.spec, "steps")
    if state is not None:
        ppo.load_state_dict(state)
    resumable.begin(ppo.env_steps, total, ppo.env_steps)
    while ppo.env_steps < total:
        began, before = time.monotonic(), copy.deepcopy(ppo.state_dict())
        metrics = ppo.iterate(context.should_stop)
        if metrics is None:
            resumable.stop(before["env_steps"], before.copy)
        speed = (ppo.env_steps - before["env_steps"]) / max(time.monotonic() - began, 1e-9)
        run.log({name: metrics.get(name, math.nan) for name in columns[:-1]} | {columns[-1]: speed})
        reached = metrics["episode_return"] / (ppo.config.extrinsic_scale or 1.0)  # in the environment's own unit
        resumable.progress(ppo.env_steps, {} if math.isnan(reached) else {"return": reached})
        resumable.save(ppo.env_steps, ppo.state_dict)


def estimate(spec: RunSpec, context: Context) -> float:
    """Seconds that a run takes on one core, from a short rollout."""
    protocol = ExplorationProtocol.from_dict(spec.protocol)
    steps = -(-CALIBRATION_STEPS // protocol.num_envs)
    short = protocol.replaced(rollout_steps=min(steps, protocol.ppo.rollout_steps))
    return measure(dataclasses.replace(spec, protocol=short.to_dict()), context, make)


def measure(spec: RunSpec, context: Context, make: Make) -> float:
    """Seconds that a run takes on one core, if all its rollouts take as long as the second."""
    keep_memory()
    with one_thread():
        ppo = make(spec, dataclasses.replace(context, threads=1))
        ppo.iterate()
        before = ppo.env_steps
        seconds = seconds_of(ppo.iterate)
        ppo.close()
    return planned_length(spec, "steps") * seconds / (ppo.env_steps - before)


def make(spec: RunSpec, context: Context) -> PPO:
    """The agent of a run, in its environment, before its first step."""
    protocol = ExplorationProtocol.from_dict(spec.protocol)
    env = make_envs(protocol, str(spec.params["env_id"]), spec.condition, spec.seed, protocol.num_envs)
    spaces = env.single_observation_space, env.single_action_space
    return PPO(
        env,
        protocol.ppo,
        make_reward(spec.method, *spaces, protocol.reward, context.device, spec.seed),
        seed=spec.seed,
        device=context.device,
        threads=context.threads,
        window=protocol.return_window,
    )


def load_policy(spec: RunSpec, weights: Mapping[str, Any]) -> Policy:
    """The policy of a run with some weights."""
    protocol = ExplorationProtocol.from_dict(spec.protocol)
    env = make_envs(protocol, str(spec.params["env_id"]), spec.condition, spec.seed, num_envs=1)
    policy = Policy(env.single_observation_space, env.single_action_space, protocol.ppo, torch.Generator())
    policy.load_state_dict(weights)
    return policy


# Environments by name: the grids of `headway.rl`, and those that users add


def register_env(name: str) -> Callable[[MakeEnv], MakeEnv]:
    """Add an environment: a class of `gymnasium.Env`, or a function that makes one.

    Its randomness must come from `self.np_random` alone, so that a stopped run resumes exactly.

    Args:
        name: what `headway run doorkey --env` calls it; letters, digits, dashes and underscores.

    Raises:
        EnvError: the name is taken or not valid.
    """
    return ENVIRONMENTS.register(name)


def make_envs(
    protocol: ExplorationProtocol, env_id: str, noise: str, seed: int, num_envs: int, autoreset_mode: str = "same_step"
) -> Any:
    """The environments of a run, which are stepped together."""
    if env_id not in ENVIRONMENTS.names():
        channel = True if protocol.noise_channel == "always" else None
        options: dict[str, Any] = {"noise_channel": channel, "autoreset_mode": autoreset_mode}
        return make_env(env_id, num_envs, noise, protocol.backend, seed, protocol.view, **options)
    if noise != "none":
        raise EnvError(f"expected noise none with the environment {env_id}, got {noise!r}, which needs doors")
    return ReplayableVectorEnv(ENVIRONMENTS.find(env_id), num_envs, AutoresetMode[autoreset_mode.upper()])


class ReplayableVectorEnv(SyncVectorEnv):
    """N environments of a user, one after the other, with a state: how their episodes came about."""

    def __init__(self, make: MakeEnv, num_envs: int, autoreset_mode: AutoresetMode) -> None:
        super().__init__([lambda: Replayable(make())] * num_envs, autoreset_mode=autoreset_mode)
        self._replayed: Sequence[Any] = self.envs

    def state_dict(self) -> dict[str, Any]:
        """The beginning of each episode, and the actions since."""
        return {"episodes": [env.state_dict() for env in self._replayed]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Play the episodes of a state again, if there are as many and each comes out as it was."""
        if len(state["episodes"]) != self.num_envs:
            raise StateError(f"expected episodes of {self.num_envs} environments, got {len(state['episodes'])}")
        for env, episode in zip(self._replayed, state["episodes"], strict=True):
            env.load_state_dict(episode)
