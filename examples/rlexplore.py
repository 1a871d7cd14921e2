"""A loop as it is written for RLeXplore's reward modules, with ICM+GMC in their place.

    pip install 'headway-torch[rl]'
    python examples/rlexplore.py [--quick] [--method icm+gmc]

An actor-critic of forty lines learns CartPole from the task's reward plus the intrinsic one. What concerns the
intrinsic reward is three lines: the object, `watch` and `compute`. It takes half a minute on one core.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn

from headway.integrations.rlexplore import RLeXploreReward
from headway.rl.episodes import with_last_observations

Samples = dict[str, torch.Tensor]
ENVS, STEPS, GAMMA, LAMBDA = 8, 64, 0.99, 0.95


class Agent(nn.Module):
    """A policy and a value."""

    def __init__(self, inputs: int, actions: int) -> None:
        """Two small networks."""
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, actions))
        self.value = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 1))

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Actions [N] for observations [N, D]."""
        return torch.distributions.Categorical(logits=self.policy(obs)).sample()


def advantages(agent: Agent, samples: Samples, rewards: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """GAE, and the returns that the value learns, [steps, environments]."""
    with torch.no_grad():
        values = agent.value(samples["observations"]).squeeze(-1)
        following = agent.value(samples["next_observations"]).squeeze(-1)
    found, last = torch.zeros_like(values), torch.zeros(ENVS)
    for t in reversed(range(STEPS)):
        goes_on = (~(samples["terminateds"][t] | samples["truncateds"][t])).float()
        delta = rewards[t] + GAMMA * following[t] * (~samples["terminateds"][t]).float() - values[t]
        last = delta + GAMMA * LAMBDA * goes_on * last
        found[t] = last
    return found, found + values


def learn(
    agent: Agent, optimizer: torch.optim.Optimizer, samples: dict[str, torch.Tensor], rewards: torch.Tensor
) -> None:
    """One step of advantage actor-critic."""
    advantage, returns = advantages(agent, samples, rewards)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    choice = torch.distributions.Categorical(logits=agent.policy(samples["observations"]))
    policy_loss = -(choice.log_prob(samples["actions"]) * advantage).mean() - 0.01 * choice.entropy().mean()
    value_loss = (agent.value(samples["observations"]).squeeze(-1) - returns).square().mean()
    optimizer.zero_grad()
    (policy_loss + 0.5 * value_loss).backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()


def main() -> None:
    """Train, and print returns."""
    parser = argparse.ArgumentParser(description="a loop for RLeXplore's modules, with headway's rewards")
    parser.add_argument("--quick", action="store_true", help="a few rollouts, to see that it works")
    parser.add_argument("--method", default="icm+gmc")
    parser.add_argument("--rollouts", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rollouts = 5 if options.quick else options.rollouts
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)

    envs = RecordEpisodeStatistics(
        gymnasium.make_vec(
            "CartPole-v1", ENVS, vectorization_mode="sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}
        )
    )
    irs = RLeXploreReward(envs, beta=0.1, kappa=0.01, method=options.method, seed=options.seed)
    agent = Agent(4, 2)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
    obs = torch.as_tensor(envs.reset(seed=options.seed)[0])
    for rollout in range(rollouts):
        steps = []
        for _ in range(STEPS):
            with torch.no_grad():
                actions = agent.act(obs)
            new_obs, rewards, terminated, truncated, infos = envs.step(actions.numpy())
            ended = terminated | truncated
            last = with_last_observations(new_obs, ended, infos) if ended.any() else new_obs
            arrays = (rewards, terminated, truncated, last.copy())  # the environment may use its own array again
            step = (obs, actions, *map(torch.as_tensor, arrays))
            irs.watch(*step)
            steps.append(step)
            obs = torch.as_tensor(new_obs.copy())
        keys = ("observations", "actions", "rewards", "terminateds", "truncateds", "next_observations")
        samples = {key: torch.stack(values) for key, values in zip(keys, zip(*steps, strict=True), strict=True)}
        intrinsic = irs.compute(samples, sync=True)
        learn(agent, optimizer, samples, samples["rewards"].float() + intrinsic)
        if rollout % 25 == 24 or rollout == rollouts - 1:
            returns = list(envs.return_queue) or [float("nan")]
            print(
                f"{(rollout + 1) * STEPS * ENVS:8,} steps  return {np.mean(returns):6.1f}  "
                f"intrinsic {float(intrinsic.mean()):.4f} at weight {irs.weight:.3f}"
            )


if __name__ == "__main__":
    main()
