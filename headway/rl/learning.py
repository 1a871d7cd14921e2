"""How a policy and a value network learn from a rollout: advantages, then epochs of minibatches.

Generalised advantage estimation (J. Schulman et al., 2015): with V(s) the value of an observation and s' what really
followed it, the last observation where an episode ended,

    delta_t = r_t + gamma V(s'_t) [not terminated] - V(s_t)
    A_t     = delta_t + gamma lambda [not ended] A_{t+1}

The advantage is linear in the rewards: one more unit of reward at step t + k of the same episode adds (gamma lambda)^k
to A_t, whatever the values are.

The networks learn from the same rollout and share nothing, so two cores can train one each. That is faster than two
cores on every product, which wait for each other, and gives the numbers of one core: no sum is split.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.agent import Policy
from headway.rl.config import PPOConfig
from headway.rl.rollout import Rollout
from headway.rl.spaces import Array, Mask

ROUND_TO = 8
"""Passes have a multiple of so many observations: kernels are made anew for every size that they have not met."""

ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class Values:
    """What a value network says about a rollout."""

    before: Array  # of what was acted on [T, N, heads]
    after: Array  # of what really followed [T, N, heads]
    last: Array  # of what is acted on next [N, heads]


def estimate(
    rollout: Rollout, extrinsic: Array, intrinsic: Array, values: Values, config: PPOConfig
) -> tuple[Array, Array]:
    """The advantages of a rollout's actions, and what the values should have been.

    With one head both rewards are added before anything else. With two, each has its own values and its own
    advantages, and the advantages are added: the factors on the rewards are also the weights of the two.

    Returns:
        advantages [T, N] and returns [T, N, heads], for the rewards of the environment and the intrinsic ones [T, N],
        both scaled.
    """
    ended, valid = rollout.ended, rollout.valid
    terminated = ended if config.truncation == "terminate" else rollout.terminated
    first = extrinsic + intrinsic if config.value_heads == 1 else extrinsic
    before, after = values.before[..., 0], values.after[..., 0]
    gains = [advantages(first, before, after, terminated, ended, config.gamma, config.gae_lambda, valid)]
    if config.value_heads == 2:
        before, after = values.before[..., 1], values.after[..., 1]
        if not config.intrinsic_episodic:
            after = onward_values(before, values.last[..., 1], valid)
            terminated = ended = np.zeros_like(ended)
        gamma = config.intrinsic_gamma
        gains.append(advantages(intrinsic, before, after, terminated, ended, gamma, config.gae_lambda, valid))
    each = np.stack(gains, axis=-1)
    return each.sum(axis=-1), each + values.before


def explained_variance(values: Array, returns: Array) -> float:
    """How much of the variance of returns [n] the values [n] explain: 1 is all; NaN where returns do not vary."""
    spread = returns.var()
    return float(1 - (returns - values).var() / spread) if spread > 0 else float("nan")


def reward_metrics(rollout: Rollout, extrinsic: Array, intrinsic: Array) -> dict[str, float]:
    """Means and deviations of both rewards [T, N] as they were learned from, and where the intrinsic one came from.

    The share of the intrinsic reward that came while the noise was on (NaN if there was none), beside the share of time
    that was spent there, tells who watches the noise.
    """
    noise_on = rollout.noise_on[rollout.valid]
    outer, inner = extrinsic[rollout.valid], intrinsic[rollout.valid]
    total = inner.sum()
    return {
        "extrinsic_mean": float(outer.mean()),
        "extrinsic_std": float(outer.std()),
        "intrinsic_mean": float(inner.mean()),
        "intrinsic_std": float(inner.std()),
        "noise_reward_share": float(inner[noise_on].sum() / total) if total else float("nan"),
        "noise_time_share": float(noise_on.mean()),
    }


def advantages(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Mask,
    ended: Mask,
    gamma: float,
    gae_lambda: float,
    valid: Mask | None = None,
) -> Array:
    """The advantages of the steps of a rollout, in double precision; all arrays are [T, N], in the order of time.

    Where there was no transition, not `valid`, the advantage is that of the next step, which is what comes before it
    is to be joined with, if `ended` does not part them.
    """
    deltas = rewards + gamma * next_values * ~terminated - values.astype(np.float64)
    decay = np.where(ended, 0.0, gamma * gae_lambda)
    if valid is not None:
        deltas, decay = np.where(valid, deltas, 0.0), np.where(valid, decay, 1.0)
    result = np.empty_like(deltas)
    later = np.zeros(deltas.shape[1])
    for step in range(len(deltas) - 1, -1, -1):
        later = deltas[step] + decay[step] * later
        result[step] = later
    return result


def onward_values(values: Array, last_values: Array, valid: Mask) -> Array:
    """What follows each step if episodes do not count: the value of the observation that is acted on next.

    The arguments are the values of what was acted on [T, N] and of what comes after the rollout [N], and where there
    was a transition [T, N]; other steps are passed over.
    """
    result = np.empty_like(values)
    following = last_values
    for step in range(len(values) - 1, -1, -1):
        result[step] = following
        following = np.where(valid[step], values[step], following)
    return result


@dataclass(frozen=True)
class TrainingBatch:
    """A rollout of n transitions, ready to learn from."""

    frames: Tensor  # the distinct observations [U, ...]
    where: Tensor  # the observation of each transition among them [n]
    actions: Tensor  # [n, ...]
    log_probabilities: Tensor  # of the actions, when they were taken [n]
    advantages: Tensor  # [n]
    values: Tensor  # as they were [n, heads]
    returns: Tensor  # what the values should have been [n, heads]
    minibatches: list[Tensor]  # transitions to learn from, step by step: indices [m] each

    def run(self, network: nn.Module, chosen: Tensor) -> Tensor:
        """The outputs of a network for transitions [m]: [m, outputs].

        Each distinct observation takes part once. The gradients of repeated ones add up, as they would otherwise.
        """
        frames, where = torch.unique(self.where[chosen], return_inverse=True)
        missing = -len(frames) % ROUND_TO
        if missing:
            frames = torch.cat([frames, frames[:1].expand(missing)])  # nobody asks for their outputs
        outputs: Tensor = network(self.frames[frames])
        return outputs.index_select(0, where)


def learn_policy(
    policy: Policy, optimizer: torch.optim.Optimizer, batch: TrainingBatch, config: PPOConfig, should_stop: ShouldStop
) -> dict[str, float] | None:
    """Improve a policy; None if asked to stop on the way.

    The loss is -mean(min(ratio A, clip(ratio, 1 - clip, 1 + clip) A)) - entropy_weight * mean(entropy). The result has
    means over all minibatches: the loss without the entropy, the entropy, how often and how far the policy moved.
    """
    history = []
    for chosen in batch.minibatches:
        if should_stop():
            return None
        outputs = batch.run(policy.network, chosen)
        log_probabilities, entropies = policy.head.log_probabilities(outputs, batch.actions[chosen])
        changes = log_probabilities - batch.log_probabilities[chosen]
        ratios = changes.exp()
        advantages = batch.advantages[chosen]
        if config.normalise_advantages == "minibatch":
            advantages = standardised(advantages)
        clipped = ratios.clamp(1 - config.clip, 1 + config.clip)
        surrogate = -torch.minimum(ratios * advantages, clipped * advantages).mean()
        entropy = entropies.mean()
        step(optimizer, surrogate - config.entropy_weight * entropy, policy, config)
        with torch.no_grad():
            is_clipped = ((ratios - 1).abs() > config.clip).float().mean()
            distance = (ratios - 1 - changes).mean()
            history.append(torch.stack([surrogate.detach(), entropy.detach(), is_clipped, distance]))
    names = ("policy_loss", "entropy", "clip_fraction", "approx_kl")
    return dict(zip(names, torch.stack(history).double().mean(0).tolist(), strict=True))


def learn_values(
    value: nn.Module, optimizer: torch.optim.Optimizer, batch: TrainingBatch, config: PPOConfig, should_stop: ShouldStop
) -> float | None:
    """Improve a value network; returns the mean loss, or None if asked to stop on the way.

    The loss is the mean squared error, added over the heads. With `value_clip` it is the larger one of the loss of the
    value and of that of the value kept near the old one.
    """
    history = []
    for chosen in batch.minibatches:
        if should_stop():
            return None
        values, returns = batch.run(value, chosen), batch.returns[chosen]
        losses = F.mse_loss(values, returns, reduction="none")
        if config.value_clip is not None:
            old = batch.values[chosen]
            near = old + (values - old).clamp(-config.value_clip, config.value_clip)
            losses = torch.maximum(losses, F.mse_loss(near, returns, reduction="none"))
        loss = losses.sum(1).mean()
        step(optimizer, loss, value, config)
        history.append(loss.detach())
    return float(torch.stack(history).double().mean())


def step(optimizer: torch.optim.Optimizer, loss: Tensor, module: nn.Module, config: PPOConfig) -> None:
    """One step down the gradient of a loss."""
    optimizer.zero_grad()
    loss.backward()
    if config.max_grad_norm is not None:
        nn.utils.clip_grad_norm_(module.parameters(), config.max_grad_norm)
    optimizer.step()


def standardised(values: Tensor) -> Tensor:
    """Values with mean 0 and deviation 1; a single one stays as it is."""
    return (values - values.mean()) / (values.std() + 1e-8) if len(values) > 1 else values


class Parallel:
    """Runs functions at the same time, as many as `threads`; with one, in their order, in the caller's thread."""

    def __init__(self, threads: int = 1) -> None:
        if threads < 1:
            raise MethodError(f"threads: expected at least 1, got {threads}")
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def run(self, *work: Callable[[], Any]) -> list[Any]:
        """Call all of them, and return the results in the order of the arguments; put the longest first."""
        if self.threads == 1 or len(work) == 1:
            return [each() for each in work]
        if self._pool is None:
            # torch keeps the number of threads that an operation is split over for each thread apart
            each_has = max(1, torch.get_num_threads() // self.threads)
            self._pool = ThreadPoolExecutor(
                self.threads, "headway-rl", initializer=torch.set_num_threads, initargs=(each_has,)
            )
        futures = [self._pool.submit(each) for each in work]
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
