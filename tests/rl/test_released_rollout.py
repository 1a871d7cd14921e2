"""Rollouts of PPO with the released networks, against a second version written in plain torch in this file.

The second version is given the first weights, what happened in the environment and the order of the minibatches. All
else it works out for itself: intrinsic rewards, the predictor's step, values, advantages, and both networks' training.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from headway.rl.ppo import PPO
from headway.runs.experiments import Context
from headway.study import doorkey
from headway.study.protocols.minigrid import ExplorationProtocol

STEPS, ROLLOUTS = 384, 2
"""Episodes end after 640 steps, so that one does in the second rollout. In the first one GMC has no moments yet."""
GAMMA, LAMBDA, CLIP, ENTROPY, CUT = 0.99, 0.95, 0.2, 0.01, 0.5
BETA, FLOOR = 0.99, 1e-8


def convolutions() -> list[nn.Module]:
    channels = (4, 32, 64, 64)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(channels):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
    return [*layers, nn.Flatten()]


def taken_over(own: nn.Module, weights: list[Tensor], channels_last: bool = False) -> Any:
    """The network with these weights; a layer after channels-last planes has its inputs in another order."""
    with torch.no_grad():
        for parameter, weight in zip(own.parameters(), weights, strict=True):
            if channels_last and weight.ndim == 2 and weight.shape[1] == 64 * 64:
                weight = weight.reshape(-1, 8, 8, 64).permute(0, 3, 1, 2).flatten(1)
            parameter.copy_(weight)
    return own


class Plain:
    """PPO with an intrinsic reward, as one writes it down first."""

    def __init__(self, method: str, ppo: PPO) -> None:
        self.method = method
        agent = ppo.agent
        self.policy = taken_over(
            nn.Sequential(*convolutions(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 7)),
            list(agent.policy.parameters()),
            channels_last=True,
        )
        self.value = taken_over(
            nn.Sequential(*convolutions(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 1)),
            list(agent.value.parameters()),
            channels_last=True,
        )
        assert ppo.reward is not None
        theirs = ppo.reward.predictor
        if method == "gmc":
            self.forward = nn.Sequential(
                nn.Linear(263, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)
            )
            trained = [taken_over(self.forward, list(theirs.scored.parameters()))]
        else:
            self.encoder = nn.Sequential(*convolutions(), nn.Linear(4096, 64), nn.Tanh())
            self.inverse = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 7))
            self.forward = nn.Sequential(nn.Linear(71, 256), nn.ReLU(), nn.Linear(256, 64))
            parts = (("encoder", self.encoder), ("inverse", self.inverse), ("scored", self.forward))
            trained = [taken_over(own, list(getattr(theirs, name).parameters())) for name, own in parts]
        self.predictor = nn.ModuleList(trained)
        self.optimizers = [
            (self.policy, torch.optim.Adam(self.policy.parameters(), 3e-4)),
            (self.value, torch.optim.Adam(self.value.parameters(), 1e-3)),
            (self.predictor, torch.optim.Adam(self.predictor.parameters(), 1e-4)),
        ]
        self.m = [torch.zeros_like(p) for p in self.forward.parameters()]
        self.v = [torch.zeros_like(p) for p in self.forward.parameters()]
        self.updates = 0

    def step(self, which: int, loss: Tensor) -> None:
        network, optimizer = self.optimizers[which]
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CUT)
        optimizer.step()

    # What is paid

    def pay(self, obs: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        """Intrinsic rewards [n], then one step of the predictor with all transitions."""
        chosen = nn.functional.one_hot(actions, 7).float()
        if self.method == "gmc":
            inputs, targets = torch.cat([obs.flatten(1), chosen], 1), after.flatten(1)
            rewards = self.couplings(inputs, targets)
            self.step(2, (self.forward(inputs) - targets).square().mean())
            return rewards
        before, following = self.encoder(obs), self.encoder(after)
        inputs, targets = torch.cat([before.detach(), chosen], 1), following.detach()
        errors = (self.forward(inputs) - targets).square().mean(1)
        rewards = 0.5 * errors.detach() if self.method == "icm" else self.couplings(inputs, targets)
        guesses = self.inverse(torch.cat([before, following], 1))
        inverse = nn.functional.cross_entropy(guesses, actions)
        self.step(2, 0.8 * inverse + 0.2 * 0.5 * errors.mean())
        return rewards

    def couplings(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """GMC [n]: each sample's own gradient, one by one, with the factor 1/n that a mean loss gives it."""
        parameters = list(self.forward.parameters())
        d = sum(p.numel() for p in parameters)
        correction = 1 - BETA**self.updates
        scores, mean = [], [torch.zeros_like(p) for p in parameters]
        for x, y in zip(inputs, targets, strict=True):
            loss = (self.forward(x) - y).square().mean() / len(inputs)
            gradients = torch.autograd.grad(loss, parameters)
            score = torch.zeros(())
            for g, m, v, total in zip(gradients, self.m, self.v, mean, strict=True):
                if self.updates:
                    score = score + (g * (m / correction) / (v / correction).clamp(min=FLOOR)).abs().sum()
                total += g / len(inputs)
            scores.append(score / d**0.5)
        for g, m, v in zip(mean, self.m, self.v, strict=True):
            m.mul_(BETA).add_(g, alpha=1 - BETA)
            v.mul_(BETA).add_(g * g, alpha=1 - BETA)
        self.updates += 1
        return torch.stack(scores)

    # What is learned

    def learn(self, obs: Tensor, actions: Tensor, advantages: Tensor, returns: Tensor, order: list[Tensor]) -> None:
        with torch.no_grad():
            old = Categorical(logits=self.policy(obs)).log_prob(actions)
        for chosen in order:
            distribution = Categorical(logits=self.policy(obs[chosen]))
            ratio = (distribution.log_prob(actions[chosen]) - old[chosen]).exp()
            gain = advantages[chosen]
            surrogate = torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
            self.step(0, -surrogate - ENTROPY * distribution.entropy().mean())
            self.step(1, (self.value(obs[chosen]).squeeze(1) - returns[chosen]).square().mean())

    def rollout(self, steps: list[tuple[Any, ...]], order: list[Tensor]) -> tuple[Tensor, Tensor]:
        """One rollout's intrinsic rewards and normalised advantages; trains all networks.

        Args:
            steps: observation [8, 8, 4], action, reward, next observation and whether the episode ended.
            order: transitions of each minibatch.
        """
        obs, after = (torch.tensor(np.stack([s[k] for s in steps])).float().permute(0, 3, 1, 2) for k in (0, 3))
        actions = torch.tensor([int(s[1]) for s in steps])
        with torch.no_grad():
            values, following = self.value(obs).squeeze(1).double(), self.value(after).squeeze(1).double()
        paid = self.pay(obs, actions, after)
        advantages, later = torch.zeros(len(steps), dtype=torch.float64), 0.0
        for t in reversed(range(len(steps))):
            goes_on = 0.0 if steps[t][4] else 1.0
            reward = 10 * float(steps[t][2]) + 0.02 * float(paid[t])
            delta = reward + GAMMA * goes_on * float(following[t]) - float(values[t])
            later = delta + GAMMA * LAMBDA * goes_on * later
            advantages[t] = later
        normalised = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        self.learn(obs, actions, normalised.float(), (advantages + values).float(), order)
        return paid, normalised


class Recorded(PPO):
    """PPO that keeps what its rollouts were and what it made of them."""

    kept: list[tuple[Any, ...]]

    def _training_batch(self, rollout: Any, frames: Any, where: Any, advantages: Any, values: Any, returns: Any) -> Any:
        batch = super()._training_batch(rollout, frames, where, advantages, values, returns)
        self.kept.append((rollout, batch))
        return batch


@pytest.mark.slow
@pytest.mark.parametrize("method", ["icm", "gmc", "icm+gmc"])
def test_intrinsic_rewards_and_advantages_are_those_of_a_second_version(method: str) -> None:
    protocol = ExplorationProtocol.released().replaced(rollout_steps=STEPS)
    (spec,) = doorkey.specs([method], ["door"], [0], protocol, "released")
    ppo = doorkey.make(spec, Context())
    ppo.__class__, ppo.kept = Recorded, []  # type: ignore[assignment,attr-defined]
    paid: list[Tensor] = []
    reward = ppo.reward
    assert reward is not None
    pay = reward.rewards_and_update

    def recorded(batch: Any) -> Any:
        result = pay(batch)
        paid.append(result.rewards)
        return result

    reward.rewards_and_update = recorded  # type: ignore[method-assign]
    plain = Plain(method, copy.copy(ppo))
    for number in range(ROLLOUTS):
        assert ppo.iterate() is not None
        rollout, batch = ppo.kept[number]  # type: ignore[attr-defined]
        arrays = (rollout.obs, rollout.actions, rollout.rewards, rollout.next_obs, rollout.ended)
        steps = [tuple(a[t, 0] for a in arrays) for t in range(STEPS) if rollout.valid[t, 0]]
        rewards, advantages = plain.rollout(steps, batch.minibatches)
        scale = float(rewards.abs().mean())
        assert (scale == 0) == (number == 0 and "gmc" in method)
        torch.testing.assert_close(paid[number], rewards, rtol=1e-4, atol=1e-4 * scale)
        torch.testing.assert_close(batch.advantages, advantages.float(), rtol=1e-4, atol=1e-4)
    assert any(kept[0].ended.any() for kept in ppo.kept), "an episode has ended"  # type: ignore[attr-defined]
    assert any(kept[0].noise_on.any() for kept in ppo.kept), "the noise was on"  # type: ignore[attr-defined]
    ppo.close()
