"""The predictors written down again, plainly: one sample at a time, no hooks, nothing shared between passes."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from headway.rl.bonuses import ICM, Forward, Predictor
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions


def numbers(observations: Tensor) -> Tensor:
    """Observations as double numbers, images with their channels first."""
    wide = observations.double()
    return wide.permute(0, 3, 1, 2) if wide.dim() == 4 else wide


def action_numbers(actions: Tensor, space: spaces.Space) -> Tensor:
    return (
        torch.eye(int(space.n), dtype=torch.double)[actions] if isinstance(space, spaces.Discrete) else actions.double()
    )


class Plain:
    """A predictor, GMC and Adam in double precision.

    Args:
        predictor: whose weights it starts from.
        action_space: of one environment.
        config: the settings.
    """

    def __init__(self, predictor: Predictor, action_space: spaces.Space, config: IntrinsicConfig) -> None:
        self.kind = type(predictor)
        self.action_space = action_space
        self.config = config
        self.model = copy.deepcopy(predictor).double()
        self.scored = list(self.model.scored.parameters())
        self.optimizer = torch.optim.Adam([p for p in self.model.parameters() if p.requires_grad], config.learning_rate)
        self.m = [torch.zeros_like(p) for p in self.scored]
        self.v = [torch.zeros_like(p) for p in self.scored]
        self.t = 0
        self.seen: list[np.ndarray] = []

    def scored_loss(self, batch: Transitions, statistics: list[np.ndarray]) -> Tensor:
        """Mean squared error of one transition [1], as a number []."""
        model, actions = self.model, action_numbers(batch.actions, self.action_space)
        obs, next_obs = numbers(batch.obs), numbers(batch.next_obs)
        if self.kind is Forward:
            target = next_obs.flatten(1)
            guess = model.scored(torch.cat([obs.flatten(1), actions], 1))
        elif self.kind is ICM:
            target = model.encoder(next_obs).tanh().detach()
            guess = model.scored(torch.cat([model.encoder(obs).tanh().detach(), actions], 1))
        else:
            if self.config.rnd_normalise:
                every = np.concatenate(statistics)
                mean, deviation = every.mean(0), every.std(0)
                scaled = (next_obs.numpy() - mean) / np.where(deviation > 0, deviation, 1)
                next_obs = torch.from_numpy(np.clip(scaled, -self.config.rnd_clip, self.config.rnd_clip))
            target = model.target(next_obs).detach()
            guess = model.scored(next_obs)
        return ((guess - target) ** 2).mean()

    def inverse_loss(self, batch: Transitions) -> Tensor:
        """Of one transition."""
        both = torch.cat(
            [self.model.encoder(numbers(batch.obs)).tanh(), self.model.encoder(numbers(batch.next_obs)).tanh()], 1
        )
        guess = self.model.inverse(both)
        if isinstance(self.action_space, spaces.Discrete):
            return F.cross_entropy(guess, batch.actions)
        return ((guess - batch.actions.double()) ** 2).mean()

    def rollout(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """GMC and the errors of all transitions [N], then one training step."""
        config, count = self.config, len(batch)
        own = numbers(batch.next_obs).numpy()
        statistics = self.seen or [own]  # the first batch is normalised by itself
        losses = [self.scored_loss(each, statistics) for each in singles(batch)]
        gradients = [torch.autograd.grad(loss, self.scored, retain_graph=True) for loss in losses]
        scores = torch.stack([self.coupling(gradient, count) for gradient in gradients])
        for i in range(len(self.scored)):
            mean = torch.stack([gradient[i] for gradient in gradients]).mean(0)
            self.m[i] = config.beta_m * self.m[i] + (1 - config.beta_m) * mean
            self.v[i] = config.beta_v * self.v[i] + (1 - config.beta_v) * mean**2
        self.t += 1
        mean_loss = torch.stack(losses).mean()
        factor = config.icm_forward_factor if self.kind is ICM else 1.0
        total = mean_loss
        if self.kind is ICM:
            inverse = torch.stack([self.inverse_loss(each) for each in singles(batch)]).mean()
            total = config.icm_inverse_weight * inverse + config.icm_forward_weight * factor * mean_loss
        self.optimizer.zero_grad()
        total.backward()
        self.total = float(total.detach())
        self.clip()
        self.optimizer.step()
        self.seen.append(own)
        return scores, factor * torch.stack(losses).detach()

    def coupling(self, gradient: tuple[Tensor, ...], count: int) -> Tensor:
        """sum |g m / max(v, floor)| / sqrt(d), with the floor in a sample's own unit."""
        config = self.config
        if self.t == 0:
            return torch.zeros((), dtype=torch.double)
        of_m, of_v = (1 - config.beta_m**self.t, 1 - config.beta_v**self.t) if config.bias_correction else (1, 1)
        floor = config.floor * count**2 if config.floor_unit == "batch" else config.floor
        size = sum(p.numel() for p in self.scored)
        if config.floor_unit == "relative":
            floor = config.floor * float(torch.stack([v.sum() for v in self.v]).sum() / of_v / size)
        parts = [
            (g * (m / of_m) / (v / of_v).clamp(min=floor)).abs().sum()
            for g, m, v in zip(gradient, self.m, self.v, strict=True)
        ]
        return torch.stack(parts).sum() / size**0.5

    def clip(self) -> None:
        gradients = [p.grad for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.sqrt(sum((g**2).sum() for g in gradients))
        self.norm = float(norm)
        if self.config.max_grad_norm is not None and norm > self.config.max_grad_norm:
            for g in gradients:
                g.mul_(self.config.max_grad_norm / (norm + 1e-6))


def singles(batch: Transitions) -> Iterator[Transitions]:
    """The transitions of a batch, one by one."""
    for i in range(len(batch)):
        yield batch[i : i + 1]
