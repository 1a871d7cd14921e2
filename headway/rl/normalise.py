"""Running statistics, and what is normalised with them: observations and rewards.

All are modules without trainable parameters: their state is in `state_dict()`, and `.to(device)` moves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from headway.errors import MethodError, StateError

Array = npt.NDArray[Any]

HORIZON = 1000
"""Steps of one environment over which intrinsic rewards are centred."""


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, each entry on its own.

    Batches are joined by the formula of Chan, Golub and LeVeque, in double precision: with d the difference of the
    two means, the squared deviations of n and k values add up to those of n + k values with d^2 n k / (n + k) more.

    Args:
        shape: of one value.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(shape, dtype=torch.float64))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was seen so far."""
        return not bool(self.count)

    @property
    def variance(self) -> Tensor:
        """The population variance, in the shape of one value; 1 before anything was seen."""
        if self.is_empty:
            return torch.ones_like(self.squares)
        return self.squares / self.count

    @property
    def deviation(self) -> Tensor:
        """The standard deviation, in the shape of one value."""
        return self.variance.sqrt()

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Take in a batch of values [B, *shape]; none at all is fine.

        Raises:
            MethodError: values of another shape.
        """
        if values.shape[1:] != self.mean.shape:
            raise MethodError(f"expected values of shape {list(self.mean.shape)}, got {list(values.shape[1:])}")
        if not len(values):
            return
        values = values.to(self.mean)
        added = values.new_tensor(float(len(values)))
        mean = values.mean(0)
        difference = mean - self.mean
        total = self.count + added
        self.squares += (values - mean).square().sum(0) + difference.square() * (self.count * added / total)
        self.mean += difference * (added / total)
        self.count.copy_(total)


class ObservationNormaliser(nn.Module):
    """Observations minus their running mean, divided by their running deviation, within limits.

    The first batch is normalised with its own statistics; later ones with those of the batches before.

    Args:
        shape: of one observation.
        clip: results are kept within -clip and clip.
    """

    def __init__(self, shape: tuple[int, ...], clip: float = 5.0) -> None:
        super().__init__()
        self.moments = RunningMoments(shape)
        self.clip = clip

    def forward(self, observations: Tensor, batch: Tensor | None = None) -> Tensor:
        """Normalise observations [B, *shape]; the statistics stay as they are.

        An entry that has been constant so far, such as a wall of the grid, is only centred.

        Args:
            observations: what to normalise.
            batch: while nothing was seen, take the statistics of these instead of those of `observations`.
        """
        moments = self.moments
        if moments.is_empty:
            moments = RunningMoments(tuple(moments.mean.shape)).to(observations.device)
            moments.update(observations if batch is None else batch)
        deviation = moments.deviation
        scale = torch.where(deviation > 0, deviation, 1.0)
        centred = (observations - moments.mean.to(observations)) / scale.to(observations)
        return centred.clamp(-self.clip, self.clip)

    def update(self, observations: Tensor) -> None:
        """Take in observations [B, *shape]."""
        self.moments.update(observations)


class RewardNormaliser(nn.Module):
    """Rewards minus their running mean, divided by the running deviation of their discounted sums.

    Each environment has a running mean of its own: all steps count alike up to `horizon` of them, later ones fade with
    the rate 1 / horizon. A reward that does not change is worth nothing, however long the agent lives: what is left
    is the difference that an action makes.

    The sums look back, R_t = gamma R_{t-1} + r_t in each environment, and do not stop where an episode ends: so an
    intrinsic reward keeps one scale, however it changes while the agent learns.

    A scorer with moments gives zero until it has some. Such zeros at the beginning are left out of all statistics.

    Args:
        environments: how many there are.
        gamma: the discount.
        clip: results are kept within -clip and clip; None for no limit.
        centre: take the running mean off. Without it rewards stay above zero and reward staying alive, which only
            suits values that do not end with the episode.
        horizon: steps of one environment that its mean looks back.
    """

    sums: Tensor
    means: Tensor
    steps: Tensor

    def __init__(
        self,
        environments: int,
        gamma: float = 0.99,
        clip: float | None = None,
        *,
        centre: bool = True,
        horizon: int = HORIZON,
    ) -> None:
        super().__init__()
        if not 0 <= gamma <= 1:
            raise MethodError(f"expected a discount in [0, 1], got {gamma}")
        if horizon < 1:
            raise MethodError(f"horizon: expected at least 1 step, got {horizon}")
        self.moments = RunningMoments()
        self.gamma = gamma
        self.clip = clip
        self.centre = centre
        self.horizon = horizon
        self.register_buffer("sums", torch.zeros(environments, dtype=torch.float64))
        if centre:
            self.register_buffer("means", torch.zeros(environments, dtype=torch.float64))
            self.register_buffer("steps", torch.zeros(environments, dtype=torch.float64))

    @torch.no_grad()
    def update(self, rewards: Tensor, valid: Tensor | None = None) -> None:
        """Take in the rewards of a rollout [steps, environments].

        Args:
            rewards: in the order of time.
            valid: where there was a transition; others do not count and leave the sums as they are.
        """
        if rewards.dim() != 2 or rewards.shape[1] != len(self.sums):
            raise MethodError(
                f"expected rewards of shape [steps, {len(self.sums)}], got {list(rewards.shape)}; "
                f"the second number is that of the environments"
            )
        counted = np.ones(rewards.shape, dtype=bool) if valid is None else valid.cpu().numpy().astype(bool)
        sums, history = self.sums.cpu().numpy(), rewards.detach().cpu().double().numpy().copy()
        if self.centre:
            if self.moments.is_empty and not history[counted].any():
                return
            history -= self._follow(history, counted)
        for reward, counts in zip(history, counted, strict=True):  # on the host: steps are many, environments few
            sums = np.where(counts, self.gamma * sums + reward, sums)
            reward[:] = sums
        self.sums.copy_(torch.from_numpy(sums))
        self.moments.update(torch.from_numpy(history[counted]))

    def _follow(self, rewards: Array, counted: Array) -> Array:
        """Move the running means on by a rollout [steps, environments]; returns them [environments]."""
        means, steps = self.means.cpu().numpy(), self.steps.cpu().numpy()
        for reward, counts in zip(rewards, counted, strict=True):
            steps = steps + counts
            share = np.where(counts, 1 / np.clip(steps, 1, self.horizon), 0.0)
            means = means + share * (reward - means)
        self.means.copy_(torch.from_numpy(means))
        self.steps.copy_(torch.from_numpy(steps))
        return means

    def forward(self, rewards: Tensor) -> Tensor:
        """Rewards, centred and divided by the deviation; the statistics stay as they are.

        Args:
            rewards: [..., environments], each centred with the mean of its environment; of another shape, such as
                samples from a replay buffer, with the mean of all.
        """
        if self.centre:
            own = rewards.dim() and rewards.shape[-1] == len(self.means)
            rewards = rewards - (self.means if own else self.means.mean()).to(rewards)
        deviation = self.moments.deviation
        scaled = rewards / torch.where(deviation > 0, deviation, 1.0).to(rewards)
        return scaled if self.clip is None else scaled.clamp(-self.clip, self.clip)

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state; where it is that of another number of environments, these start from its mean.

        Raises:
            StateError: it is that of rewards that are centred, and these are not, or the other way round.
        """
        if ("means" in state) != self.centre:
            raise StateError(f"expected the state of a normaliser with centre={self.centre}, got {not self.centre}")
        saved = dict(state)
        if saved["sums"].shape != self.sums.shape:
            saved["sums"] = torch.zeros_like(self.sums)
            for name in ("means", "steps") if self.centre else ():
                saved[name] = saved[name].mean().expand_as(self.sums).clone()
        self.load_state_dict(saved)
