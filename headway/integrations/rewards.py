"""What adapters of intrinsic rewards share: checks of arguments, one floor for any batch, and replaced methods."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from headway.errors import MethodError, StateError
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import has_state
from headway.rl.methods import make_reward, methods_of
from headway.rl.reward import Reward
from headway.rl.scorers import SignalScorer
from headway.signals import MomentSignal


def check_number(name: str, value: Any, wanted: str = "a finite number") -> None:
    """Refuse what is no finite number, text that looks like one too."""
    try:
        is_fine = not isinstance(value, str | bytes) and math.isfinite(value)
    except (TypeError, ValueError):
        is_fine = False
    if not is_fine:
        raise MethodError(f"{name}: expected {wanted}, got {value!r}")


def check_method(method: Any) -> None:
    """Refuse a method that there is not, or that has no intrinsic reward, before anything is made of it."""
    if isinstance(method, Reward):
        return
    if not isinstance(method, str):
        raise MethodError(f'expected a method such as "icm+gmc" or an IntrinsicReward, got {method!r}')
    if not methods_of(method):
        raise MethodError(f"expected a method with an intrinsic reward, got {method!r}")


def reward_of(
    method: str | Reward, spaces: tuple[Any, Any], config: IntrinsicConfig | None, device: Any, seed: int
) -> Reward:
    """The reward that a method names, for spaces of observations and actions; or that of a user as it is."""
    check_method(method)
    made = method if isinstance(method, Reward) else make_reward(method, *spaces, config, device, seed)
    assert made is not None  # the method was checked
    return made


class CarriesEnvironment:
    """A wrapper whose state has that of the environment in it, where the environment has one."""

    env: Any

    @property
    def carries_environment(self) -> bool:
        """Whether `state_dict` has the environment too: it does where the environment has a `state_dict` itself."""
        return has_state(self.env)

    def _check_state(self, number: int, env_state: Any) -> None:
        """Refuse a state of another number of environments, or with their own state where it carries none."""
        if number != self.env.num_envs:
            raise StateError(f"expected the state of {self.env.num_envs} environments, got that of {number}")
        if (env_state is not None) != self.carries_environment:
            wanted, found = ("with", "without") if self.carries_environment else ("without", "with")
            raise StateError(f"expected a state {wanted} that of the environment, got one {found} it")


def fixed_floor(config: IntrinsicConfig, batch: int) -> IntrinsicConfig:
    """Settings whose floor does not depend on how many transitions are scored at once.

    A floor in the unit "batch" grows with the square of the number of transitions. Where a predictor learns from
    batches of one size and rewards batches of another, that number is taken to be the size that it learns from.
    """
    if config.floor_unit != "batch":
        return config
    return dataclasses.replace(config, floor=config.floor * batch**2, floor_unit="sample")


def check_unit(reward: Reward, batch: int) -> None:
    """Refuse a reward whose size depends on how many transitions are scored at once.

    It is not changed instead: whoever made it may use it elsewhere too.
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


class Intercept:
    """Stands in for a method of one object between `start` and `stop`; nothing but its own dictionary changes.

    Training can be broken off at any moment, so to pickle and to copy it is the method itself: whoever saves the object
    then gets it as it was made.

    Args:
        name: of the method.
        instead: called with the original method and the arguments.
    """

    def __init__(self, name: str, instead: Callable[..., Any]) -> None:
        self.name = name
        self._instead = instead
        self._target: Any = None

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the other function, and hand the original to it."""
        return self._instead(self._original, *args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._target is None:
            return Intercept, (self.name, self._instead)
        return getattr, (self._target, self.name)  # looked up in the copy, which has no stand-in at that moment

    def start(self, target: Any) -> None:
        """Stand in for the method of this object."""
        self.stop()
        self._target, self._original = target, getattr(target, self.name)
        setattr(target, self.name, self)

    def stop(self) -> None:
        """Put the method back, if it is replaced."""
        if self._target is not None and vars(self._target).get(self.name) is self:
            delattr(self._target, self.name)
        self._target = None
