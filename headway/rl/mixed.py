"""Several intrinsic rewards at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import MethodError, StateError
from headway.rl.episodes import Transitions
from headway.rl.normalise import RunningMoments
from headway.rl.reward import IntrinsicResult, IntrinsicReward, Reward, score_metrics


class MixedReward(Reward):
    """A weighted sum of intrinsic rewards, each in units of its own deviation.

        r = sum over k of w_k r_k / std(r_k)

    The deviation is that of all rewards of the part so far, those of the call included: rewards of different kinds
    have nothing in common but the order that they put transitions in. A part that has not changed so far, such as a
    scorer without moments yet, is left as it is.

    Args:
        parts: the rewards.
        weights: one for each.
        name: of the method.

    Raises:
        MethodError: no parts, or another number of weights.
    """

    def __init__(self, parts: Sequence[Reward], weights: Sequence[float], name: str | None = None) -> None:
        if not parts or len(parts) != len(weights):
            raise MethodError(f"expected a weight for each part, got {len(parts)} parts and {len(weights)} weights")
        self.parts, self.weights = list(parts), [float(weight) for weight in weights]
        named = zip(self.weights, self.parts, strict=True)
        self.name = name or " & ".join(f"{weight:g}*{part.name}" for weight, part in named)
        self.config, self.device = parts[0].config, parts[0].device
        self.bonus = nn.ModuleList([part.bonus for part in parts])
        self.actions = next((part.actions for part in parts if part.actions is not None), None)
        self.moments = [RunningMoments() for _ in parts]

    @property
    def is_episodic(self) -> bool:
        """See `Reward.is_episodic`."""
        return any(part.is_episodic for part in self.parts)

    def rewards_and_update(self, batch: Transitions) -> IntrinsicResult:
        """See `Reward.rewards_and_update`."""
        batch = self._checked(batch)  # all of it, before any part learns
        results = [part.rewards_and_update(batch) for part in self.parts]
        raw = [result.rewards for result in results]
        for moments, rewards in zip(self.moments, raw, strict=True):
            moments.update(rewards.cpu())
        mixed = self._mixed(raw)
        return IntrinsicResult(mixed, {**self._named([each.metrics for each in results]), **score_metrics(mixed)})

    def rewards(self, batch: Transitions) -> Tensor:
        """See `Reward.rewards`."""
        batch = self._checked(batch)
        return self._mixed([part.rewards(batch) for part in self.parts])

    def update(self, batch: Transitions) -> dict[str, float]:
        """See `Reward.update`; the deviations follow the rewards from before it."""
        batch = self._checked(batch)
        for moments, part in zip(self.moments, self.parts, strict=True):
            moments.update(part.rewards(batch).cpu())
        return self._named([part.update(batch) for part in self.parts])

    def observe(self, batch: Transitions) -> None:
        """See `Reward.observe`."""
        for part in self.parts:
            part.observe(batch)

    def end_episodes(self, envs: Sequence[int] | None = None) -> None:
        """See `Reward.end_episodes`."""
        for part in self.parts:
            part.end_episodes(envs)

    def learners(self) -> Iterator[IntrinsicReward]:
        """See `Reward.learners`."""
        for part in self.parts:
            yield from part.learners()

    def _mixed(self, rewards: list[Tensor]) -> Tensor:
        total = torch.zeros_like(rewards[0])
        for weight, moments, own in zip(self.weights, self.moments, rewards, strict=True):
            deviation = own.double().std(correction=0) if moments.is_empty else moments.deviation.to(own.device)
            total += weight * own / torch.where(deviation > 0, deviation, 1.0).to(own)
        return total

    def _named(self, metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Metrics of all parts, with the part's name before them."""
        pairs = zip(self.parts, metrics, strict=True)
        return {f"{part.name}/{key}": value for part, own in pairs for key, value in own.items()}

    def state_dict(self) -> dict[str, Any]:
        """See `Reward.state_dict`."""
        return {
            "schema": 1,
            "name": self.name,
            "parts": [part.state_dict() for part in self.parts],
            "moments": [moments.state_dict() for moments in self.moments],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Reward.load_state_dict`."""
        if state.get("name") != self.name or len(state.get("parts", ())) != len(self.parts):
            raise StateError(f"expected the state of a reward {self.name!r}, got {state.get('name')!r}")
        for part, saved in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(saved)
        for moments, saved in zip(self.moments, state["moments"], strict=True):
            moments.load_state_dict(saved)

    def __repr__(self) -> str:
        return f"MixedReward({self.name})"
