"""How a policy and a value network learn from a rollout: epochs of minibatches, the two networks in parallel.

The networks learn from the same rollout and share nothing, so two cores can train one each. That is faster than two
cores on every product, which wait for each other, and gives the numbers of one core: no sum is split.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.agent import Policy
from headway.rl.config import PPOConfig

ROUND_TO = 8
"""Passes have a multiple of so many observations: kernels are made anew for every size that they have not met."""

ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class TrainingBatch:
    """A rollout of n transitions, ready to learn from.

    Attributes:
        frames: the distinct observations [U, ...].
        where: the observation of each transition among them [n].
        actions: [n, ...].
        log_probabilities: of the actions, when they were taken [n].
        advantages: [n].
        values: as they were [n, heads].
        returns: what the values should have been [n, heads].
        minibatches: transitions to learn from, step by step: indices [m] each.
    """

    frames: Tensor
    where: Tensor
    actions: Tensor
    log_probabilities: Tensor
    advantages: Tensor
    values: Tensor
    returns: Tensor
    minibatches: list[Tensor]

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


@dataclass(frozen=True)
class PolicyReport:
    """Means over all minibatches: the loss without the entropy, the entropy, how often and how far the policy moved."""

    policy_loss: float
    entropy: float
    clip_fraction: float
    approx_kl: float


def learn_policy(
    policy: Policy, optimizer: torch.optim.Optimizer, batch: TrainingBatch, config: PPOConfig, should_stop: ShouldStop
) -> PolicyReport | None:
    """Improve a policy; None if asked to stop on the way.

    The loss is -mean(min(ratio A, clip(ratio, 1 - clip, 1 + clip) A)) - entropy_weight * mean(entropy).
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
    return PolicyReport(*torch.stack(history).double().mean(0).tolist())


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
    """Runs functions at the same time.

    Args:
        threads: how many at most. With one, they run in their order, in the caller's thread.

    Raises:
        MethodError: not a number of threads.
    """

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
