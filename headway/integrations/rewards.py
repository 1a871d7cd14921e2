"""What adapters of intrinsic rewards share: checks of arguments, one floor for any batch, and replaced methods."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from headway.errors import MethodError, StateError
from headway.rl.config import IntrinsicConfig
from headway.rl.methods import make_reward, methods_of
from headway.rl.reward import Reward
from headway.rl.scorers import SignalScorer
from headway.signals import MomentSignal


def check_number(name: str, value: Any, wanted: str = "a finite number") -> None:
    """Refuse what is no finite number, text that looks like one too.

    Raises:
        MethodError: it names the argument.
    """
    try:
        is_fine = not isinstance(value, str | bytes) and math.isfinite(value)
    except (TypeError, ValueError):
        is_fine = False
    if not is_fine:
        raise MethodError(f"{name}: expected {wanted}, got {value!r}")


def check_method(method: Any) -> None:
    """Refuse a method that there is not, or that has no intrinsic reward, before anything is made of it.

    Raises:
        MethodError: for an unknown name it lists the names.
    """
    if isinstance(method, Reward):
        return
    if not isinstance(method, str):
        raise MethodError(f'expected a method such as "icm+gmc" or an IntrinsicReward, got {method!r}')
    if not methods_of(method):
        raise MethodError(f"expected a method with an intrinsic reward, got {method!r}")


def reward_of(
    method: str | Reward, spaces: tuple[Any, Any], config: IntrinsicConfig | None, device: Any, seed: int
) -> Reward:
    """The reward that a checked method names, for spaces of observations and actions; or that of a user as it is."""
    if isinstance(method, Reward):
        return method
    made = make_reward(method, *spaces, config, device, seed)
    assert made is not None  # the method was checked
    return made


def check_wrapper_state(wrapper: Any, number: int, env_state: Any) -> None:
    """Refuse a wrapper's state of another number of environments, or with their own state where it carries none."""
    if number != wrapper.num_envs:
        raise StateError(f"expected the state of {wrapper.num_envs} environments, got that of {number}")
    if (env_state is not None) != wrapper.carries_environment:
        wanted, found = ("with", "without") if wrapper.carries_environment else ("without", "with")
        raise StateError(f"expected a state {wanted} that of the environment, got one {found} it")


def fixed_floor(config: IntrinsicConfig, batch: int) -> IntrinsicConfig:
    """Settings whose floor does not depend on how many transitions are scored at once.

    A floor in the unit "batch" grows with the square of the number of transitions. Where a predictor learns from
    batches of one size and rewards batches of another, that number is taken to be the size that it learns from.

    Args:
        config: the settings.
        batch: how many transitions the predictor learns from at once.
    """
    if config.floor_unit != "batch":
        return config
    return dataclasses.replace(config, floor=config.floor * batch**2, floor_unit="sample")


def check_unit(reward: Reward, batch: int) -> None:
    """Refuse a reward whose size depends on how many transitions are scored at once.

    It is not changed instead: whoever made it may use it elsewhere too.

    Args:
        reward: made by a user.
        batch: how many transitions the predictor learns from at once.

    Raises:
        MethodError: it says how to make one that works.
    """
    scorers = (learner.scorer for learner in reward.learners())
    signals: list[Any] = [scorer.signal for scorer in scorers if isinstance(scorer, SignalScorer)]
    signal = next((each for each in signals if getattr(each, "unit", "sample") == "batch"), None)
    if signal is None:
        return
    way_out = "give its signal unit='sample'"
    if isinstance(signal, MomentSignal):
        floor = signal.floor_for(batch)
        way_out = (
            f"the floor for batches of update_every={batch} is IntrinsicConfig(floor={floor:.6g}, floor_unit='sample') "
            f"for make_reward, or floor={floor:.6g}, unit='sample' for a signal of your own"
        )
    raise MethodError(
        f"expected a reward in the unit 'sample', got {reward.name!r} in the unit 'batch', which depends on how many "
        f"transitions are scored at once; {way_out}"
    )


class ReplacedMethod:
    """Called in a method's place; to pickle and to copy it is the method itself.

    Training can be broken off at any moment, so whoever saves the object then must get it as it was made.

    Args:
        target: whose method it is.
        name: of the method.
        instead: called with the original method and the arguments.
    """

    def __init__(self, target: Any, name: str, instead: Callable[..., Any]) -> None:
        self._target, self._name = target, name
        self._original = getattr(target, name)
        self._instead = instead

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the other function, and hand the original to it."""
        return self._instead(self._original, *args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """As a bound method: its name is looked up in the copy, which has no stand-in at that moment."""
        return getattr, (self._target, self._name)


class Intercept:
    """Replaces a method of one object, and puts the class's own back.

    Nothing but the object's own dictionary changes, and only between `start` and `stop`.

    Args:
        name: of the method.
        instead: called with the original method and the arguments.
    """

    def __init__(self, name: str, instead: Callable[..., Any]) -> None:
        self.name = name
        self._instead = instead
        self._target: Any = None

    def start(self, target: Any) -> None:
        """Stand in for the method of this object."""
        self.stop()
        self._target, self._replaced = target, ReplacedMethod(target, self.name, self._instead)
        setattr(target, self.name, self._replaced)

    def stop(self) -> None:
        """Put the method back, if it is replaced."""
        if self._target is not None and vars(self._target).get(self.name) is self._replaced:
            delattr(self._target, self.name)
        self._target = None
