"""Intrinsic rewards by name.

reward = make_reward("icm+gmc", env.single_observation_space, env.single_action_space)
for each rollout:
    result = reward.rewards_and_update(Transitions(obs, actions, next_obs))
    rewards += coefficient * result.rewards
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headway.errors import EnvError, MethodError, did_you_mean
from headway.rl.bonuses import BONUSES, Predictor
from headway.rl.config import IntrinsicConfig
from headway.rl.mixed import MixedReward
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


@dataclass(frozen=True)
class Mixture:
    """Several methods by name, with their weights."""

    parts: tuple[tuple[float, str], ...]


def parse_method(name: str) -> Method | Mixture | None:
    """What a method's name stands for; None for "ppo", which has no intrinsic reward.

    Raises:
        MethodError: there is no such method; the message lists the names.
    """
    if name == "ppo":
        return None
    if "&" in name or "*" in name:
        return Mixture(tuple(_weighted(part.strip(), name) for part in name.split("&")))
    bonus, _, scorer = _SHORT.get(name, name).partition("+")
    scorer = scorer or ("error" if "+" not in name else "")
    if bonus not in BONUSES.names() or scorer not in SCORERS.names():
        raise MethodError(
            f"expected a method out of {', '.join(METHODS)}, or a bonus ({', '.join(BONUSES.names())}) and "
            f"a scorer ({', '.join(SCORERS.names())}) joined by '+', got {name!r}"
            f"{did_you_mean(name, [*METHODS, *BONUSES.names()])}"
        )
    return Method(bonus, scorer)


def _weighted(part: str, name: str) -> tuple[float, str]:
    """The weight and the method of a part such as "0.3*counts"; the weight is 1 if none is given."""
    weight, star, method = part.rpartition("*")
    try:
        number = float(weight) if star else 1.0
    except ValueError:
        number = math.nan
    method = method.strip()
    if not 0 < number < math.inf or parse_method(method) is None:
        raise MethodError(f"expected parts such as 'icm+gmc' or '0.3*counts' joined by '&', got {part!r} in {name!r}")
    return number, method


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
    parsed = parse_method(method)
    if parsed is None:
        return None
    config = default_for(observation_space) if config is None else config
    parts = parsed.parts if isinstance(parsed, Mixture) else ((1.0, method),)
    _check_options([name for _, name in parts], options)
    spaces = observation_space, action_space
    made = [_make_one(name, spaces, config, device, seed + index, options) for index, (_, name) in enumerate(parts)]
    return MixedReward(made, [weight for weight, _ in parts], method) if isinstance(parsed, Mixture) else made[0]


def _make_one(
    name: str,
    spaces: tuple[Any, Any],
    config: IntrinsicConfig,
    device: str | torch.device,
    seed: int,
    options: Mapping[str, Any],
) -> Reward:
    method = parse_method(name)
    assert isinstance(method, Method)  # parts of a mixture are no mixtures
    generator = torch.Generator().manual_seed(seed)
    make = BONUSES.find(method.bonus)
    own = {key: value for key, value in options.items() if key in _options(name)}
    bonus = make(*spaces, config, generator, **own).to(device)
    if isinstance(bonus, Predictor):
        return IntrinsicReward(bonus, SCORERS.find(method.scorer)(config, bonus), config, generator, name=name)
    return MemoryReward(bonus, config, device, name, method.scorer, generator)


def _options(name: str) -> list[str]:
    """The options of a method's bonus."""
    method = parse_method(name)
    assert isinstance(method, Method)
    arguments = inspect.signature(BONUSES.find(method.bonus)).parameters.values()
    return [each.name for each in arguments if each.kind is each.KEYWORD_ONLY]


def _check_options(names: list[str], options: Mapping[str, Any]) -> None:
    known = [option for name in names for option in _options(name)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        wanted = f"options out of {', '.join(known)}" if known else "no options"
        raise MethodError(f"{', '.join(names)}: expected {wanted}, got {', '.join(unknown)}")


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
