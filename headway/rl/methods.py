"""Intrinsic rewards by name, one or several at once.

reward = make_reward("icm+gmc", env.single_observation_space, env.single_action_space)
for each rollout:
    result = reward.rewards_and_update(Transitions(obs, actions, next_obs))
    rewards += coefficient * result.rewards
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import EnvError, MethodError, did_you_mean
from headway.rl.bonuses import BONUSES, Predictor
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.normalise import RunningMoments
from headway.rl.reward import IntrinsicReward, MemoryReward, Reward
from headway.rl.scorers import SCORERS
from headway.rl.spaces import unclear_image

METHODS = ("ppo", "forward", "icm", "rnd", "gmc", "icm+gmc", "rnd+gmc")
"""The methods with a name of their own; any predictor and scorer can be joined by a plus."""

_SHORT = {"gmc": "forward+gmc"}


class Method(NamedTuple):
    """A bonus and a scorer by name, and what the rewards count in a mixture."""

    name: str
    bonus: str
    scorer: str
    weight: float = 1.0


def methods_of(name: str) -> list[Method]:
    """The methods that a name stands for; none for "ppo".

    Raises:
        MethodError: there is no such method; the message lists the names.
    """
    if name == "ppo":
        return []
    if not _is_mixed(name):
        return [_read(name)]
    methods = []
    for part in map(str.strip, name.split("&")):
        weight, star, method = part.rpartition("*")
        try:
            number = float(weight) if star else 1.0
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf or method.strip() == "ppo":
            raise MethodError(
                f"expected parts such as 'icm+gmc' or '0.3*counts' joined by '&', got {part!r} in {name!r}"
            )
        methods.append(_read(method.strip())._replace(weight=number))
    return methods


def _is_mixed(name: str) -> bool:
    return "&" in name or "*" in name


def _read(name: str) -> Method:
    """A single method."""
    bonus, _, scorer = _SHORT.get(name, name).partition("+")
    scorer = scorer or ("error" if "+" not in name else "")
    if bonus not in BONUSES.names() or scorer not in SCORERS.names():
        bonuses = sorted(BONUSES.names())
        raise MethodError(
            f"expected a method out of {', '.join(METHODS)}, or a bonus ({', '.join(bonuses)}) and "
            f"a scorer ({', '.join(SCORERS.names())}) joined by '+', got {name!r}"
            f"{did_you_mean(name, [*METHODS, *bonuses])}"
        )
    return Method(name, bonus, scorer)


def make_reward(
    method: str,
    observation_space: Any,
    action_space: Any,
    config: IntrinsicConfig | None = None,
    device: str | torch.device = "cpu",
    seed: int = 0,
    **options: Any,
) -> Reward | None:
    """Make the intrinsic reward of a method.

    Args:
        method: such as "icm+gmc": a bonus and how it is scored, or a bonus alone for its own score. Several are mixed
            with weights, as in "0.7*icm+gmc & 0.3*counts".
        observation_space: of one environment (`env.single_observation_space`).
        action_space: of one environment.
        config: settings; None for the defaults, which take images as [H, W, C].
        device: where the networks live.
        seed: of the weights, and of the order of minibatches.
        options: of the bonus alone, such as `bits=64` of "counts"; each part of a mixture takes those that it has.

    Returns:
        None for "ppo".

    Raises:
        MethodError: no such method, no such option, or a scorer for a memory that has nothing to score.
        EnvError: a space that the bonus cannot handle, or without a config images that look like [C, H, W].
    """
    parts = methods_of(method)
    if not parts:
        return None
    config = default_for(observation_space) if config is None else config
    known = [option for each in parts for option in _options(each)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        wanted = f"options out of {', '.join(known)}" if known else "no options"
        names = ", ".join(each.name for each in parts)
        raise MethodError(f"{names}: expected {wanted}, got {', '.join(unknown)}")
    made: list[Reward] = []
    for index, each in enumerate(parts):
        generator = torch.Generator().manual_seed(seed + index)
        own = {key: value for key, value in options.items() if key in _options(each)}
        bonus = BONUSES.find(each.bonus)(observation_space, action_space, config, generator, **own).to(device)
        if isinstance(bonus, Predictor):
            made.append(IntrinsicReward(bonus, each.scorer, config, generator, each.name))
        else:
            made.append(MemoryReward(bonus, config, device, each.name, each.scorer, generator))
    return MixedReward(made, [each.weight for each in parts], method) if _is_mixed(method) else made[0]


def _options(method: Method) -> list[str]:
    """The options of a method's bonus."""
    arguments = inspect.signature(BONUSES.find(method.bonus)).parameters.values()
    return [each.name for each in arguments if each.kind is each.KEYWORD_ONLY]


def default_for(observation_space: Any) -> IntrinsicConfig:
    """The default settings, for observations that they suit.

    Raises:
        EnvError: images that look like [C, H, W].
    """
    unclear = unclear_image(observation_space)
    if unclear is not None:
        raise EnvError(
            f"expected a config for observations of shape {list(unclear)}, which look like [C, H, W], "
            f"got none; use IntrinsicConfig(channels_first=True), with observation_scale=1/255 for pixels, or "
            f"IntrinsicConfig() if they are [H, W, C]"
        )
    return IntrinsicConfig()


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

    def _reward_and_learn(self, batch: Transitions) -> tuple[Tensor, dict[str, float]]:
        results = [part.rewards_and_update(batch) for part in self.parts]
        raw = [result.rewards for result in results]
        for moments, rewards in zip(self.moments, raw, strict=True):
            moments.update(rewards.cpu())
        return self._mixed(raw), self._named([each.metrics for each in results])

    def _reward(self, batch: Transitions) -> Tensor:
        return self._mixed([part.rewards(batch) for part in self.parts])

    def _learn(self, batch: Transitions) -> dict[str, float]:
        for moments, part in zip(self.moments, self.parts, strict=True):  # as rewards are before they are learned from
            moments.update(part.rewards(batch).cpu())
        return self._named([part.update(batch) for part in self.parts])

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
        self._check_state(state, "parts", {})
        for part, saved in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(saved)
        for moments, saved in zip(self.moments, state["moments"], strict=True):
            moments.load_state_dict(saved)

    def __repr__(self) -> str:
        return f"MixedReward({self.name})"
