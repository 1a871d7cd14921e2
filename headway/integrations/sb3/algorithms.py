"""Callbacks by the kind of algorithm: rollouts (PPO, A2C) or a replay buffer (DQN, SAC, TD3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from headway.errors import EnvError, MethodError
from headway.integrations.rewards import check_unit, fixed_floor
from headway.integrations.sb3.callback import IntrinsicCallback, flat
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.spaces import Array


class OnPolicyIntrinsicCallback(IntrinsicCallback):
    """Adds an intrinsic reward to each rollout before its advantages are computed.

        model = PPO("MlpPolicy", "CartPole-v1")
        model.learn(100_000, callback=OnPolicyIntrinsicCallback("icm+gmc", coefficient=0.1))

    When the rollout is complete, the algorithm asks its buffer for returns and advantages. At that moment all
    transitions of the rollout are rewarded, the predictor learns from them, and the rewards go into the buffer; then
    the buffer computes as ever. The task's own episode statistics, the bootstrap at truncated episodes and the random
    numbers of the algorithm stay as they are.

    See `IntrinsicCallback` for the arguments.
    """

    works_with: ClassVar[tuple[str, type[BaseAlgorithm]]] = ("an on-policy", OnPolicyAlgorithm)
    replaces = "compute_returns_and_advantage"
    model: OnPolicyAlgorithm

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ends: list[tuple[int, int, Array]] = []
        self._steps = 0
        self._has_rewarded = False

    def _check(self, model: BaseAlgorithm) -> None:
        """Refuse also normalised observations that the buffer would round."""
        super()._check(model)
        normalised = model.get_vec_normalize_env()
        dtype = self._seen(self.model.rollout_buffer.observations).dtype
        keys = None if normalised is None else getattr(normalised, "norm_obs_keys", None)  # None: all of them
        is_normalised = normalised is not None and normalised.norm_obs and (keys is None or self._key in keys)
        if is_normalised and dtype.kind not in "fc":
            raise EnvError(
                f"expected a rollout buffer of float32 for normalised observations, got one of {dtype}, which would "
                f"cut every value to a whole number; wrap each environment in "
                f"gymnasium.wrappers.DtypeObservation(env, np.float32)"
            )

    def _on_training_start(self) -> None:
        """The environments may have been reset since."""
        super()._on_training_start()
        self._made.end_episodes()

    def _on_rollout_start(self) -> None:
        self._ends, self._steps, self._has_rewarded = [], 0, False
        self._intercept.start(self.model.rollout_buffer)

    def _on_step(self) -> bool:
        """Keep the last observations of episodes: the buffer has the first ones of the next instead."""
        dones = self.locals["dones"]
        if np.any(dones):
            infos = self.locals["infos"]
            for i in map(int, np.flatnonzero(dones)):
                last = infos[i].get("terminal_observation")
                if last is None:
                    raise EnvError(
                        f"expected infos[{i}]['terminal_observation'] where an episode ended, got none; "
                        f"a VecEnv has to put the last observation there before it begins a new episode"
                    )
                self._ends.append((self._steps, i, np.array(self._seen(last))))
        self._steps += 1
        return True

    def _on_rollout_end(self) -> None:
        self._intercept.stop()
        if not self._has_rewarded:
            raise MethodError(
                f"expected {type(self.model).__name__} to call rollout_buffer.compute_returns_and_advantage(), "
                f"it did not: the intrinsic reward would not reach the update"
            )

    def _reward(self, method: Callable[..., None], *args: Any, **options: Any) -> None:
        """Add the intrinsic reward to the buffer, then compute as ever."""
        buffer = self.model.rollout_buffer
        buffer.rewards += self._learn_from(self._transitions(), len(buffer.rewards)).numpy()
        self._has_rewarded = True
        method(*args, **options)

    def _transitions(self) -> Transitions:
        """All transitions of the rollout, [steps * environments]."""
        buffer = self.model.rollout_buffer
        ended = np.zeros(buffer.rewards.shape, dtype=bool)
        observations = self._seen(buffer.observations).reshape(*ended.shape, *self._space(self.model).shape)
        last = np.asarray(self._seen(self.locals["new_obs"])).reshape(observations.shape[1:])
        following = np.concatenate([observations[1:], last[None].astype(observations.dtype)])
        for step, environment, observation in self._ends:
            following[step, environment] = observation
            ended[step, environment] = True
        return Transitions.of_rollout(obs=observations, actions=self._actions(), next_obs=following, ended=ended)

    def _actions(self) -> Array:
        """The actions [T, N, ...] that the environments were given: within bounds, where the policy's are not."""
        space, policy, buffer = self.model.action_space, self.model.policy, self.model.rollout_buffer
        actions: Array = buffer.actions.reshape(*buffer.rewards.shape, *(space.shape or ()))
        if not isinstance(space, spaces.Box):
            return actions
        return policy.unscale_action(actions) if policy.squash_output else np.clip(actions, space.low, space.high)


class OffPolicyIntrinsicCallback(IntrinsicCallback):
    """Adds an intrinsic reward to the transitions that an algorithm samples from its replay buffer.

        model = DQN("MlpPolicy", "MountainCar-v0")
        model.learn(100_000, callback=OffPolicyIntrinsicCallback("icm+gmc", coefficient=0.1))

    The buffer keeps the task's rewards. Transitions are rewarded each time they are sampled, by the predictor as it is
    then: what was new when it was stored may be long known when it is replayed, and with moments that fill up first,
    what is stored early would never be rewarded. The predictor learns from each transition once, in the order of time.

    Args:
        args: as `IntrinsicCallback`.
        update_every: the predictor learns when so many new transitions have come together. A floor in the unit
            "batch" is meant for batches of this size; an `IntrinsicReward` of your own needs the unit "sample".
        options: as `IntrinsicCallback`.

    Raises:
        MethodError: as `IntrinsicCallback`, a reward of your own with the unit "batch", or one that looks at single
            episodes, which samples of a replay buffer do not have.
    """

    works_with: ClassVar[tuple[str, type[BaseAlgorithm]]] = ("an off-policy", OffPolicyAlgorithm)
    replaces = "sample"
    model: OffPolicyAlgorithm

    def __init__(self, *args: Any, update_every: int = 256, **options: Any) -> None:
        super().__init__(*args, **options)
        if update_every < 1:
            raise MethodError(f"update_every: expected at least 1, got {update_every}")
        if self.reward is not None:
            check_unit(self.reward, update_every)
        self.update_every = update_every
        self._settings["update_every"] = update_every
        self._collected = 0
        self._waiting = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything that later rewards depend on, the number of transitions that wait among it."""
        return {**super().state_dict(), "waiting": self._waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; transitions that wait are looked for in the replay buffer."""
        super().load_state_dict(state)
        self._waiting = min(int(state["waiting"]), self._buffer.size())

    def _on_rollout_start(self) -> None:
        self._intercept.stop()
        self._collected = 0

    def _on_step(self) -> bool:
        self._collected += 1
        return super()._on_step()

    def _on_rollout_end(self) -> None:
        """Learn from what was collected, and reward from here on: the algorithm trains next."""
        buffer = self._buffer
        self._waiting = min(self._waiting + self._collected, buffer.buffer_size)
        if self._waiting * buffer.n_envs >= self.update_every or self._waiting == buffer.buffer_size:
            self._learn()
        self._intercept.start(buffer)

    def _learn(self) -> None:
        """Train the predictor with the newest transitions."""
        buffer, normalised = self._buffer, self.model.get_vec_normalize_env()
        rows = np.arange(buffer.pos - self._waiting, buffer.pos) % buffer.buffer_size
        shape = tuple(self._space(self.model).shape)

        def seen(stored: Any) -> torch.Tensor:
            """Observations as they are sampled, so that what is learned and what is rewarded look alike."""
            chosen = {name: part[rows] for name, part in stored.items()} if self._key else stored[rows]
            return flat(np.asarray(self._seen(buffer._normalize_obs(chosen, normalised))), shape)

        actions = flat(buffer.actions[rows], tuple(self.model.action_space.shape or ()))
        batch = Transitions(seen(buffer.observations), actions, seen(buffer.next_observations))
        self._learn_from(batch, len(rows))
        self._waiting = 0

    def _reward(self, method: Callable[..., ReplayBufferSamples], *args: Any, **options: Any) -> ReplayBufferSamples:
        """Sample as ever, and reward what came out."""
        samples = method(*args, **options)
        obs = self._seen(samples.observations).reshape(-1, *self._space(self.model).shape)
        following = self._seen(samples.next_observations).reshape(obs.shape)
        actions = samples.actions.reshape(-1, *(self.model.action_space.shape or ()))
        raw = self._made.rewards(Transitions(obs, actions, following))
        bonus: torch.Tensor = self._scaled(raw[:, None]).view_as(samples.rewards).to(samples.rewards)
        return samples._replace(rewards=samples.rewards + bonus)

    @property
    def _buffer(self) -> ReplayBuffer:
        buffer = self.model.replay_buffer
        if buffer is None:
            raise MethodError(f"expected {type(self.model).__name__} to have a replay buffer, got none")
        return buffer

    def _config(self, model: BaseAlgorithm) -> IntrinsicConfig:
        """As ever, with a floor that is the same for samples of any size."""
        return fixed_floor(super()._config(model), self.update_every)

    def _begin(self, model: BaseAlgorithm) -> None:
        """As ever; what waited for the predictor is in the buffer of another model."""
        if self._made.is_episodic:
            raise MethodError(
                f"expected a bonus that does not look at single episodes, got {self._made.name!r}: a replay buffer "
                f"samples transitions out of their order; use an on-policy algorithm, or a bonus such as 'rnd'"
            )
        super()._begin(model)
        self._waiting = 0

    def _check(self, model: BaseAlgorithm) -> None:
        """Refuse buffers that do not have the transitions themselves."""
        super()._check(model)
        buffer = self._buffer
        if buffer.optimize_memory_usage:
            raise MethodError(
                "expected optimize_memory_usage=False, got True: such a buffer loses the last observation of an "
                "episode, so that transitions would lead into the next one"
            )
        steps = getattr(buffer, "n_steps", 1)
        if steps != 1:
            raise MethodError(
                f"expected a buffer that samples single transitions, got {type(buffer).__name__} with "
                f"n_steps={steps}; use n_steps=1"
            )
