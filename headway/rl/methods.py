"""Intrinsic rewards by name.

reward = make_reward("icm+gmc", env.single_observation_space, env.single_action_space)
for each rollout:
    result = reward.rewards_and_update(Transitions(obs, actions, next_obs))
    rewards += coefficient * result.rewards
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headway.errors import EnvError, MethodError, did_you_mean
from headway.rl.bonuses import BONUSES, Predictor
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.reward import IntrinsicReward, MemoryReward, Reward
from headway.rl.scorers import SCORERS
from headway.rl.spaces import is_image, leaves, looks_channels_first

METHODS = ("ppo", "forward", "icm", "rnd", "gmc", "icm+gmc", "rnd+gmc")
"""The methods with a name of their own; any predictor and scorer can be joined by a plus."""

_SHORT = {"gmc": "forward+gmc"}


@dataclass(frozen=True)
class Method:
    """A bonus and a scorer by name."""

    bonus: str
    scorer: str


def parse_method(name: str) -> Method | None:
    """What a method's name stands for; None for "ppo", which has no intrinsic reward.

    Raises:
        MethodError: there is no such method; the message lists the names.
    """
    if name == "ppo":
        return None
    bonus, _, scorer = _SHORT.get(name, name).partition("+")
    scorer = scorer or ("error" if "+" not in name else "")
    if bonus not in BONUSES.names() or scorer not in SCORERS.names():
        raise MethodError(
            f"expected a method out of {', '.join(METHODS)}, or a bonus ({', '.join(BONUSES.names())}) and "
            f"a scorer ({', '.join(SCORERS.names())}) joined by '+', got {name!r}"
            f"{did_you_mean(name, [*METHODS, *BONUSES.names()])}"
        )
    return Method(bonus, scorer)


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
        method: such as "icm+gmc": a bonus and how it is scored, or a bonus alone for its own score.
        observation_space: of one environment (`env.single_observation_space`).
        action_space: of one environment.
        config: settings; None for the defaults, which take images as [H, W, C].
        device: where the networks live.
        seed: of the weights, and of the order of minibatches.
        options: of the bonus alone, such as `bits=64` of "counts".

    Returns:
        None for "ppo".

    Raises:
        MethodError: no such method, no such option, or a scorer for a memory, which has no gradients.
        EnvError: a space that the bonus cannot handle, or without a config images that look like [C, H, W].
    """
    parsed = parse_method(method)
    if parsed is None:
        return None
    config = default_for(observation_space) if config is None else config
    generator = torch.Generator().manual_seed(seed)
    make = BONUSES.find(parsed.bonus)
    if options:
        _check_options(parsed.bonus, make, options)
    bonus = make(observation_space, action_space, config, generator, **options).to(device)
    if isinstance(bonus, Predictor):
        return IntrinsicReward(bonus, SCORERS.find(parsed.scorer)(config, bonus), config, generator, name=method)
    if parsed.scorer != "error":
        raise MethodError(
            f"expected {parsed.bonus!r} alone, got {method!r}: it is a memory, without gradients for a scorer"
        )
    return MemoryReward(bonus, config, device, name=method)


def _check_options(bonus: str, make: Any, options: Mapping[str, Any]) -> None:
    known = [each.name for each in inspect.signature(make).parameters.values() if each.kind is each.KEYWORD_ONLY]
    unknown = sorted(set(options) - set(known))
    if unknown:
        wanted = f"options out of {', '.join(known)}" if known else "no options"
        raise MethodError(f"{bonus}: expected {wanted}, got {', '.join(unknown)}")


def default_for(observation_space: Any) -> IntrinsicConfig:
    """The default settings, for observations that they suit.

    Raises:
        EnvError: images that look like [C, H, W].
    """
    images = [part.shape for _, part in leaves(observation_space) if is_image(part)]
    first = next(filter(looks_channels_first, images), None)
    if first is not None:
        raise EnvError(
            f"expected a config for observations of shape {list(first)}, which look like [C, H, W], "
            f"got none; use IntrinsicConfig(channels_first=True), with observation_scale=1/255 for pixels, or "
            f"IntrinsicConfig() if they are [H, W, C]"
        )
    return IntrinsicConfig()
