"""Running statistics, and what is normalised with them: observations and rewards.

All are modules without trainable parameters: their state is in `state_dict()`, and `.to(device)` moves them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from headway.errors import MethodError


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
        """Start with nothing seen."""
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
        """Start with nothing seen."""
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
    """Rewards divided by the running deviation of their discounted sums.

    The sums look back, R_t = gamma R_{t-1} + r_t in each environment, and do not stop where an episode ends: so an
    intrinsic reward keeps one scale, however it changes while the agent learns. The mean is not taken off.

    Args:
        environments: how many there are.
        gamma: the discount.
        clip: results are kept within -clip and clip; None for no limit.
    """

    sums: Tensor

    def __init__(self, environments: int, gamma: float = 0.99, clip: float | None = None) -> None:
        """Start with nothing seen."""
        super().__init__()
        if not 0 <= gamma <= 1:
            raise MethodError(f"expected a discount in [0, 1], got {gamma}")
        self.moments = RunningMoments()
        self.gamma = gamma
        self.clip = clip
        self.register_buffer("sums", torch.zeros(environments, dtype=torch.float64))

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
        for reward, counts in zip(history, counted, strict=True):  # on the host: steps are many, environments few
            sums = np.where(counts, self.gamma * sums + reward, sums)
            reward[:] = sums
        self.sums.copy_(torch.from_numpy(sums))
        self.moments.update(torch.from_numpy(history[counted]))

    def forward(self, rewards: Tensor) -> Tensor:
        """Rewards of any shape, divided by the deviation; the statistics stay as they are."""
        deviation = self.moments.deviation
        scaled = rewards / torch.where(deviation > 0, deviation, 1.0).to(rewards)
        return scaled if self.clip is None else scaled.clamp(-self.clip, self.clip)
