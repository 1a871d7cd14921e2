"""Proximal policy optimisation (J. Schulman et al., 2017), with or without an intrinsic reward.

`PPO.iterate` is the algorithm, in the order in which it happens: act, reward, estimate, learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.errors import EnvError, MethodError, StateError
from headway.rl.agent import Agent, read
from headway.rl.config import PPOConfig
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Episodes, Transitions, has_state
from headway.rl.learning import (
    Parallel,
    TrainingBatch,
    Values,
    estimate,
    explained_variance,
    learn_policy,
    learn_values,
    reward_metrics,
    standardised,
)
from headway.rl.normalise import RewardNormaliser
from headway.rl.reward import IntrinsicResult, Reward
from headway.rl.rollout import EpisodeLog, Rollout, collect, remembering
from headway.rl.spaces import Array, is_joint

Mark = Callable[[str], None]
OnRollout = Callable[[Array, Array], None]
"""Told the advantages [T, N] of each rollout, and the intrinsic rewards [T, N] as they are scored."""

CHUNK = 256
"""Observations that are valued in one pass."""


def never() -> bool:
    """The answer of somebody who does not want to stop."""
    return False


def ignore(phase: str) -> None:
    """What somebody does who does not measure time."""


class PPO:
    """An agent that learns by PPO in vector environments.

        env = headway.rl.make_env("MiniGrid-DoorKey-8x8-v0", num_envs=16)
        reward = make_reward("icm+gmc", env.single_observation_space, env.single_action_space)
        ppo = PPO(env, PPOConfig(rollout_steps=128), reward)
        for _ in range(100):
            print(ppo.iterate()["episode_return"])

    Args:
        env: a Gymnasium vector environment, under any autoreset mode.
        config: the settings.
        reward: the intrinsic reward; None for the rewards of the environment alone.
        seed: where all randomness starts: weights, actions, minibatches and the environment.
        device: where the networks live.
        threads: pieces of work that are done at the same time. It changes no number as long as torch does not split
            operations, that is after `torch.set_num_threads(1)`.
        window: episodes over which returns and lengths are averaged.
        on_rollout: called with the advantages [T, N] of each rollout and its intrinsic rewards [T, N], neither centred
            nor scaled, zero where there are none; for curricula that choose levels by them.

    Raises:
        EnvError: no vector environment, or spaces that PPO cannot work with.
        MethodError: a network that does not fit the observations, or rollouts too short to have a transition.
    """

    def __init__(
        self,
        env: Any,
        config: PPOConfig | None = None,
        reward: Reward | None = None,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        threads: int = 1,
        window: int = 10,
        on_rollout: OnRollout | None = None,
    ) -> None:
        if reward is not None and not hasattr(reward, "rewards_and_update"):
            raise MethodError(f"expected a reward from headway.rl.make_reward(METHOD, ...), got {reward!r}")
        self.env = env
        self.config = PPOConfig() if config is None else config
        self.reward = reward
        self.env_steps = 0
        self._on_rollout = on_rollout
        self._device = device
        self._parallel = Parallel(threads)
        self.episodes = Episodes(env)
        space = env.single_observation_space
        if not is_joint(space) and (space.dtype is None or space.dtype.kind not in "biuf"):
            raise EnvError(f"expected observations of numbers, got the space {space}")
        if not is_joint(space) and not space.shape:
            raise EnvError(
                f"expected observations with an axis, got single numbers ({space}); code them first, for example wrap "
                f"each environment in gymnasium.wrappers.FlattenObservation before vectorising"
            )
        if self.episodes.mode.name == "NEXT_STEP" and self.config.rollout_steps < 2:
            raise MethodError("expected rollouts of at least 2 steps, got 1, which may be a reset and nothing else")
        agent_seed, env_seed = (int(word) for word in np.random.SeedSequence(seed).generate_state(2))
        self._generator = torch.Generator().manual_seed(agent_seed)
        self.agent = Agent(space, env.single_action_space, self.config, self._generator, device)
        self._normaliser = None
        if self.config.normalise_intrinsic:
            gamma = self.config.gamma if self.config.value_heads == 1 else self.config.intrinsic_gamma
            self._normaliser = RewardNormaliser(env.num_envs, gamma, centre=self.config.centre_intrinsic)
        self._log = EpisodeLog(env.num_envs, window)
        self.episodes.reset(seed=env_seed)

    # The algorithm

    def iterate(self, should_stop: Callable[[], bool] = never, mark: Mark = ignore) -> dict[str, float] | None:
        """One rollout and what is learned from it.

        Args:
            should_stop: asked between steps and between minibatches.
            mark: told the name of each phase when it ends, for whoever measures the time.

        Returns:
            metrics by name; None if asked to stop, after which only `load_state_dict` makes sense.
        """
        config, policy = self.config, self.agent.policy
        if self.env_steps == 0 and self.reward is not None:
            self._warm_up()
        act = remembering(policy.act)
        rollout = collect(self.episodes, act, policy.head, config.rollout_steps, self._generator, should_stop)
        if rollout is None:
            return None
        mark("act")

        frames, where = self._frames(rollout)
        result, values = self._reward_and_value(rollout, frames, where)
        mark("pay and value")

        extrinsic = config.extrinsic_scale * rollout.rewards
        raw = np.zeros(rollout.rewards.shape)  # as they are scored, zero where there was no transition
        if result is not None:
            raw[rollout.valid] = result.rewards.double().cpu().numpy()
        intrinsic = self._intrinsic(rollout, raw, result is not None)
        advantages, returns = estimate(rollout, extrinsic, intrinsic, values, config)
        if self._on_rollout is not None:
            self._on_rollout(advantages, raw)
        batch = self._training_batch(rollout, frames, where, advantages, values.before, returns)
        mark("estimate")

        learned = self._learn(batch, should_stop)
        if learned is None:
            return None
        mark("learn")

        self.env_steps += rollout.rewards.size
        self._log.add(extrinsic, rollout.ended, rollout.valid)
        valid = rollout.valid
        return {
            "env_steps": self.env_steps,
            **self._log.metrics(),
            **learned,
            "explained_variance": explained_variance(values.before[valid].sum(-1), returns[valid].sum(-1)),
            **reward_metrics(rollout, extrinsic, intrinsic),
            **(result.metrics if result else {}),
        }

    def _warm_up(self) -> None:
        """Act at random, and let the predictor take its statistics from what is seen."""
        head, envs = self.agent.policy.head, self.env.num_envs
        outputs = np.zeros((envs, head.outputs))
        for noise in head.noise(self.config.warm_up_steps, envs, self._generator):
            step = self.episodes.step(head.to_env(head.sample(outputs, noise)))
            if self.reward is not None and step.valid.any():
                seen = (torch.from_numpy(each[step.valid]) for each in (step.obs, step.actions, step.next_obs))
                self.reward.observe(Transitions(*seen))

    def _frames(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """The distinct observations [U, ...], and where among them those of the rollout are.

        First what was acted on [T * N], then what followed [T * N], then what is acted on next [N].
        """
        rows = [each.reshape(-1, *each.shape[2:]) for each in (rollout.obs, rollout.next_obs)]
        rows.append(rollout.last_obs)
        frames, where = distinct_rows(read(np.concatenate(rows), self.agent.policy.scale))
        return frames.to(self._device), where.to(self._device)

    def _reward_and_value(
        self, rollout: Rollout, frames: Tensor, where: Tensor
    ) -> tuple[IntrinsicResult | None, Values]:
        """Intrinsic rewards, for which the predictor learns, and beside it the values of all observations."""
        reward = self.reward

        def score() -> IntrinsicResult | None:
            return None if reward is None else reward.rewards_and_update(rollout.transitions())

        value = [partial(self.agent.values, part) for part in frames.split(CHUNK)]
        result, *found = self._parallel.run(score, *value)
        values: Array = torch.cat(found)[where].double().cpu().numpy()
        steps, envs = rollout.rewards.shape
        before, after, last = np.split(values, [steps * envs, 2 * steps * envs])
        shape = (steps, envs, values.shape[1])
        return result, Values(before.reshape(shape), after.reshape(shape), last)

    def _intrinsic(self, rollout: Rollout, rewards: Array, is_paid: bool) -> Array:
        """The intrinsic rewards as they are learned from [T, N]; the arena has another way."""
        if is_paid and self._normaliser is not None:
            raw, valid = torch.from_numpy(rewards), torch.from_numpy(rollout.valid)
            self._normaliser.update(raw, valid)
            rewards = torch.where(valid, self._normaliser(raw), 0.0).numpy()
        return self.config.intrinsic_scale * rewards

    def _training_batch(
        self, rollout: Rollout, frames: Tensor, where: Tensor, advantages: Array, values: Array, returns: Array
    ) -> TrainingBatch:
        """What there is to learn, transition by transition; steps without one are left out."""
        valid = rollout.valid
        kept = torch.from_numpy(valid.reshape(-1)).to(self._device)
        outputs, actions, gains, old, new = (
            torch.from_numpy(each[valid]).to(self._device)
            for each in (rollout.outputs, rollout.actions, advantages, values, returns)
        )
        if self.config.normalise_advantages == "rollout":
            gains = standardised(gains)
        with torch.no_grad():
            log_probabilities, _ = self.agent.policy.head.log_probabilities(outputs, actions)
        orders = [torch.randperm(len(gains), generator=self._generator) for _ in range(self.config.epochs)]
        return TrainingBatch(
            frames=frames,
            where=where[: len(kept)][kept],
            actions=actions,
            log_probabilities=log_probabilities,
            advantages=gains.float(),
            values=old.float(),
            returns=new.float(),
            minibatches=[part.to(self._device) for order in orders for part in order.split(self.config.minibatch_size)],
        )

    def _learn(self, batch: TrainingBatch, should_stop: Callable[[], bool]) -> dict[str, float] | None:
        """Policy and values, side by side."""
        agent, config = self.agent, self.config
        metrics, value_loss = self._parallel.run(
            partial(learn_policy, agent.policy, agent.policy_optimizer, batch, config, should_stop),
            partial(learn_values, agent.value, agent.value_optimizer, batch, config, should_stop),
        )
        return None if metrics is None or value_loss is None else {**metrics, "value_loss": value_loss}

    # State

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the training depends on. Tensors are those in use, not copies.

        Raises:
            StateError: the environment cannot tell its state.
        """
        if not has_state(self.env):
            raise StateError(
                f"expected an environment with state_dict() and load_state_dict(), got {self.env}; "
                f"headway.rl.make_env makes such environments"
            )
        episodes = self.episodes.state_dict()
        return {
            "schema": 1,
            "agent": self.agent.state_dict(),
            "reward": None if self.reward is None else self.reward.state_dict(),
            "normaliser": None if self._normaliser is None else self._normaliser.state_dict(),
            "generator": self._generator.get_state(),
            "env": self.env.state_dict(),
            "episodes": {name: torch.from_numpy(value) for name, value in episodes.items()},
            "log": self._log.state_dict(),
            "env_steps": self.env_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit.

        Raises:
            StateError: it is that of another kind of agent or environment.
        """
        if state.get("schema") != 1:
            raise StateError(f"expected the state of a PPO of schema 1, got {state.get('schema')!r}")
        for name, own in (("reward", self.reward), ("normaliser", self._normaliser)):
            if (state[name] is None) != (own is None):
                raise StateError(f"expected a state {'without' if own is None else 'with'} a {name}, got the contrary")
        self.env.load_state_dict(state["env"])
        self.episodes.load_state_dict({name: value.numpy() for name, value in state["episodes"].items()})
        if self.reward is not None:
            self.reward.load_state_dict(state["reward"])
        if self._normaliser is not None:
            self._normaliser.load_state_dict(state["normaliser"])
        self.agent.load_state_dict(state["agent"])
        self._generator.set_state(state["generator"].cpu())
        self._log.load_state_dict(state["log"])
        self.env_steps = state["env_steps"]

    def close(self) -> None:
        """End the threads and close the environment."""
        self._parallel.close()
        self.env.close()
