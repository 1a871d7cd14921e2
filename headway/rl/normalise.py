"""Running statistics, and what is normalised with them: observations and rewards.

All are modules without trainable parameters: their state is in `state_dict()`, and `.to(device)` moves them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from headway.errors import MethodError, StateError
from headway.rl.spaces import Array

HORIZON = 256
"""Steps over which the mean of intrinsic rewards is taken, where a rollout is shorter."""
OWN_HORIZON = 10 * HORIZON
"""Steps over which an environment's own distance from that mean is taken."""
ROUNDING = 1e-6
"""A deviation below this share of the mean is rounding: rewards are float32."""


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, each entry on its own.

    Batches are joined by the formula of Chan, Golub and LeVeque, in double precision: with d the difference of the
    two means, the squared deviations of n and k values add up to those of n + k values with d^2 n k / (n + k) more.
    The shape is that of one value.
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

    @property
    def divisor(self) -> Tensor:
        """The standard deviation, and 1 where it is zero."""
        return torch.where(self.deviation > 0, self.deviation, 1.0)

    def or_of(self, values: Tensor) -> RunningMoments:
        """These statistics; while nothing was seen, those of values [B, *shape]."""
        if not self.is_empty:
            return self
        own = RunningMoments(tuple(self.mean.shape)).to(values.device)
        own.update(values)
        return own

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Take in a batch of values [B, *shape]; none at all is fine."""
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
    """Observations of a shape, minus their running mean, divided by their running deviation, within -clip and clip.

    The first batch is normalised with its own statistics; later ones with those of the batches before.
    """

    def __init__(self, shape: tuple[int, ...], clip: float = 5.0) -> None:
        super().__init__()
        self.moments = RunningMoments(shape)
        self.clip = clip

    def forward(self, observations: Tensor, batch: Tensor | None = None) -> Tensor:
        """Normalise observations [B, *shape]; the statistics stay as they are.

        An entry that has been constant so far, such as a wall of the grid, is only centred. While nothing was seen, the
        statistics are those of `batch`, or of the observations.
        """
        moments = self.moments.or_of(observations if batch is None else batch)
        centred = (observations - moments.mean.to(observations)) / moments.divisor.to(observations)
        return centred.clamp(-self.clip, self.clip)

    def update(self, observations: Tensor) -> None:
        """Take in observations [B, *shape]."""
        self.moments.update(observations)


class RewardNormaliser(nn.Module):
    """Intrinsic rewards on a scale that a coefficient can refer to.

    By default rewards are centred: r becomes (r - mean) (1 - gamma) / deviation. The mean is that of the rollout over
    all environments, plus a slower one of what sets each environment apart; the deviation is that of all centred
    rewards so far. A constant reward is worth nothing, however long the agent lives. An agent that earns one deviation
    more than the mean at every step has an intrinsic return of 1.

    Without centring, rewards are divided by the running deviation of their discounted sums, R_t = gamma R_{t-1} + r_t
    in each environment, which go on where an episode ends (Burda et al., 2018). They stay above zero and reward
    staying alive, which only suits values that do not end with the episode.

    A scorer with moments gives zero until it has some. Centred rewards leave such zeros out of all statistics.

    Args:
        environments: how many there are.
        gamma: the discount.
        clip: results are kept within -clip and clip; None for no limit.
        centre: as above.
        horizon: the steps of each environment that the mean covers, where a rollout is shorter.
    """

    sums: Tensor
    mean: Tensor
    distances: Tensor
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
        self.environments = environments
        self.gamma = gamma
        self.clip = clip
        self.centre = centre
        self.horizon = horizon
        names = ("distances", "steps") if centre else ("sums",)
        for name in names:
            self.register_buffer(name, torch.zeros(environments, dtype=torch.float64))
        if centre:
            self.register_buffer("mean", torch.zeros((), dtype=torch.float64))

    @property
    def means(self) -> Tensor:
        """What is taken off the rewards of each environment [environments]."""
        return self.mean + self.distances

    @property
    def scale(self) -> Tensor:
        """What rewards are divided by, one number; 1 as long as they do not differ."""
        if not self.centre:
            return self.moments.divisor
        deviation = self.moments.deviation
        span = 1 / max(1 - self.gamma, 1 / OWN_HORIZON)
        return torch.where(deviation > ROUNDING * self.mean.abs(), deviation * span, 1.0)

    @torch.no_grad()
    def update(self, rewards: Tensor, valid: Tensor | None = None) -> None:
        """Take in the rewards of a rollout [steps, environments]; those that are not valid do not count."""
        if rewards.dim() != 2 or rewards.shape[1] != self.environments:
            raise MethodError(
                f"expected rewards of shape [steps, {self.environments}], got {list(rewards.shape)}; "
                f"the second number is that of the environments"
            )
        counted = np.ones(rewards.shape, dtype=bool) if valid is None else valid.cpu().numpy().astype(bool)
        history = rewards.detach().cpu().double().numpy()
        if self.centre:
            if not counted.any() or (self.moments.is_empty and not history[counted].any()):
                return
            history = history - self._follow(history, counted)
        else:
            history = self._summed(history, counted)
        self.moments.update(torch.from_numpy(history[counted]))

    def _summed(self, rewards: Array, counted: Array) -> Array:
        """Discounted sums [steps, environments] of a rollout, from where the last one ended."""
        sums, history = self.sums.cpu().numpy(), []
        for reward, counts in zip(rewards, counted, strict=True):  # on the host: steps are many, environments few
            sums = np.where(counts, self.gamma * sums + reward, sums)
            history.append(sums)
        self.sums.copy_(torch.from_numpy(sums))
        return np.stack(history) if history else rewards

    def _follow(self, rewards: Array, counted: Array) -> Array:
        """Move the means on by a rollout [steps, environments]; returns them [environments].

        With k counted steps of n so far, a running mean moves by k / min(n, horizon) of the way, at most all of it.
        """
        steps = counted.sum(0)
        total = self.steps.cpu().numpy() + steps
        sums = np.where(counted, rewards, 0.0).sum(0)
        mean, share = sums.sum() / steps.sum(), steps.sum() / min(total.sum(), self.horizon * len(total))
        distances = np.where(steps > 0, sums / np.maximum(steps, 1) - mean, 0.0)
        shares = np.minimum(steps / np.clip(total, 1, OWN_HORIZON), 1.0)
        self.mean += min(share, 1.0) * (mean - self.mean)
        self.distances += torch.from_numpy(shares).to(self.mean) * (
            torch.from_numpy(distances).to(self.mean) - self.distances
        )
        self.steps.copy_(torch.from_numpy(total))
        return self.means.cpu().numpy()

    def forward(self, rewards: Tensor) -> Tensor:
        """Rewards on the scale; the statistics stay as they are.

        Args:
            rewards: [..., environments], each centred with the mean of its environment; of another shape, such as
                samples from a replay buffer, with the mean of all.
        """
        if self.centre:
            own = rewards.dim() and rewards.shape[-1] == self.environments
            rewards = rewards - (self.means if own else self.mean).to(rewards)
        scaled = rewards / self.scale.to(rewards)
        return scaled if self.clip is None else scaled.clamp(-self.clip, self.clip)

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state; where it is that of another number of environments, these start from its mean.

        Raises:
            StateError: it is that of rewards that are centred, and these are not, or the other way round.
        """
        own = self.state_dict()
        if state.keys() != own.keys():
            raise StateError(f"expected the state of a normaliser with centre={self.centre}, got one of another kind")
        same = {name: value if value.shape == own[name].shape else own[name] for name, value in state.items()}
        self.load_state_dict(same)
