"""What the callbacks for on-policy and off-policy algorithms share, and how models carry their state along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.torch_layers import NatureCNN
from torch import Tensor

from headway.errors import EnvError, MethodError, StateError
from headway.integrations.rewards import Intercept, check_method, check_number, reward_of
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.normalise import RewardNormaliser
from headway.rl.reward import Reward
from headway.rl.spaces import Array, looks_channels_first

ATTRIBUTE = "intrinsic_reward"
"""The model's attribute. Stable-Baselines3 saves every attribute that it does not know better."""
GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")
"""The parts of observations with goals; hindsight relabels the last."""


class Carried:
    """Stands for a callback in the model's file: it is pickled as the state that the callback has at that moment."""

    def __init__(self, callback: IntrinsicCallback) -> None:
        self.callback: IntrinsicCallback | None = callback
        self._state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """The state of the callback, or what was loaded, with all tensors in main memory."""
        state: dict[str, Any] = on_cpu(self._state if self.callback is None else self.callback.state_dict())
        return state

    def __getstate__(self) -> dict[str, Any]:
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.callback, self._state = None, state

    def __repr__(self) -> str:  # short: Stable-Baselines3 writes it into the model's file
        return f"Carried({self.state_dict().get('settings')})"


def on_cpu(value: Any) -> Any:
    """A copy of nested dictionaries and lists with tensors in main memory, so that any machine can load it."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, Mapping):
        return {key: on_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(on_cpu(item) for item in value)
    return value


Coefficient = float | Callable[[float], float]
SelfCallback = TypeVar("SelfCallback", bound="IntrinsicCallback")


class IntrinsicCallback(BaseCallback):
    """Gives an intrinsic reward to an algorithm of Stable-Baselines3; see the two subclasses.

    Args:
        method: such as "icm+gmc", or an `IntrinsicReward` of your own.
        coefficient: what the intrinsic reward is multiplied by: a number, or a function of the remaining progress,
            which falls from 1 to 0, as learning rates are given to Stable-Baselines3.
        normalise: bring the intrinsic reward to a scale on which one deviation more than the mean at every step is a
            return of 1. The coefficient says what that is worth in units of the task's return.
        centre: with `normalise`, take the mean off, so that being alive is worth nothing; without it, rewards are
            divided by the running deviation of their discounted sums. See `headway.rl.RewardNormaliser`.
        config: settings of the predictor and the scorer; None for those that suit the observations.
        key: the part of Dict observations that the bonus sees. In environments with goals it is "observation" by
            default, so that hindsight, which relabels goals, does not change what is new.
        seed: of the predictor's weights.
        device: where the predictor lives; "auto" for the model's device.
        verbose: as in all callbacks.

    Raises:
        MethodError: there is no such method, or it has no intrinsic reward.
    """

    works_with: ClassVar[tuple[str, type[BaseAlgorithm]]]
    replaces: ClassVar[str]
    """The method of the algorithm's buffer in whose place `_reward` is called."""

    def __init__(
        self,
        method: str | Reward = "icm+gmc",
        *,
        coefficient: Coefficient = 0.05,
        normalise: bool = True,
        centre: bool = True,
        config: IntrinsicConfig | None = None,
        key: str | None = None,
        seed: int = 0,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        check_method(method)
        if not callable(coefficient):
            check_number("coefficient", coefficient, "a finite number or a function of the progress")
        self.coefficient = coefficient
        self.reward: Reward | None = method if isinstance(method, Reward) else None
        self.normaliser: RewardNormaliser | None = None
        self._given = self.reward is not None
        self._key: str | None = None
        self._device = device
        self._intercept = Intercept(self.replaces, self._instead)
        if isinstance(method, Reward):
            config = method.config
        self._settings: dict[str, Any] = {
            "method": method.name if isinstance(method, Reward) else method,
            "coefficient": coefficient,
            "normalise": normalise,
            "centre": centre,
            "config": None if config is None else config.to_dict(),
            "key": key,
            "seed": seed,
        }

    @classmethod
    def carried_by(cls: type[SelfCallback], model: BaseAlgorithm, **changed: Any) -> SelfCallback:
        """The callback that a loaded model was trained with, ready to go on.

        Args:
            model: from `Algorithm.load`.
            changed: arguments that shall differ from those of the saved callback. `method` must be among them where
                that had an `IntrinsicReward` of your own: a file has its state, but not how it was made.

        Raises:
            StateError: the model carries no intrinsic reward, or one that only you can make.
        """
        carried = vars(model).get(ATTRIBUTE)
        if not isinstance(carried, Carried):
            raise StateError("expected a model that carries an intrinsic reward, got one that does not; make a new one")
        state = carried.state_dict()
        settings = dict(state["settings"])
        if state.get("given") and "method" not in changed:
            raise StateError(
                f"expected method= with the reward {settings['method']!r} made anew, got none: the model was trained "
                f"with an IntrinsicReward of your own; use carried_by(model, method=your_reward)"
            )
        if settings["config"] is not None:
            settings["config"] = IntrinsicConfig.from_dict(settings["config"])
        return cls(**{**settings, **changed})

    # State

    def state_dict(self) -> dict[str, Any]:
        """Everything that later rewards depend on. The model carries it: there is no need to call this."""
        return {
            "settings": dict(self._settings),
            "given": self._given,
            "reward": self._made.state_dict(),
            "normaliser": None if self.normaliser is None else self.normaliser.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; the number of environments may be another.

        Raises:
            StateError: it is the state of another method.
        """
        try:
            self._made.load_state_dict(state["reward"])
        except StateError as error:
            raise StateError(
                f"{error}; the model carries another intrinsic reward: go on with it by {type(self).__name__}."
                f"carried_by(model), or leave it behind with `del model.{ATTRIBUTE}`"
            ) from None
        if self.normaliser is not None and state["normaliser"] is not None:
            self.normaliser.resume(state["normaliser"])

    # What Stable-Baselines3 calls

    def _init_callback(self) -> None:
        """Make the networks, or go on with those that the model carries."""
        model, (kind, wanted) = self.model, self.works_with
        if not isinstance(model, wanted):
            other = "OffPolicyIntrinsicCallback" if kind == "an on-policy" else "OnPolicyIntrinsicCallback"
            name, got = type(self).__name__, type(model).__name__
            raise MethodError(f"{name}: expected {kind} algorithm, got {got}; {other} is the callback for it")
        carried = vars(model).get(ATTRIBUTE)
        if isinstance(carried, Carried) and carried.callback is self:
            return
        self._check(model)
        if not self._given:
            settings, sides = self._settings, (self._space(model), model.action_space)
            device = model.device if self._device == "auto" else self._device
            with torch.random.fork_rng(devices=[]):  # the algorithm's own random numbers stay as they are
                self.reward = reward_of(settings["method"], sides, self._config(model), device, settings["seed"])
        self._begin(model)
        if isinstance(carried, Carried):
            self.load_state_dict(carried.state_dict())
        setattr(model, ATTRIBUTE, Carried(self))

    def _on_training_start(self) -> None:
        """Refuse to be one of two."""
        carried = vars(self.model).get(ATTRIBUTE)
        if not isinstance(carried, Carried) or carried.callback is not self:
            raise MethodError(f"expected one callback with an intrinsic reward for a model, got two: {self!r}")

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._intercept.stop()

    # Parts

    def _instead(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self.model.num_timesteps == self.num_timesteps:
            return self._reward(method, *args, **options)
        self._intercept.stop()  # left over from training that was broken off
        return method(*args, **options)

    def _reward(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call the buffer's method, with the intrinsic reward in what goes into it or comes out of it."""
        raise NotImplementedError

    @property
    def _made(self) -> Reward:
        if self.reward is None:
            raise StateError("expected a callback that learn() has started, got one that was not used yet")
        return self.reward

    def _begin(self, model: BaseAlgorithm) -> None:
        """Forget what belongs to the model before this one."""
        gamma = float(getattr(model, "gamma", 0.99))
        self.normaliser = None
        if self._settings["normalise"]:
            self.normaliser = RewardNormaliser(model.n_envs, gamma, centre=self._settings["centre"])

    def _config(self, model: BaseAlgorithm) -> IntrinsicConfig:
        """The settings that were given, or some with which the predictor sees images as the policy does, in [0, 1]."""
        if self._settings["config"] is not None:
            return IntrinsicConfig.from_dict(self._settings["config"])
        space = self._space(model)
        if not is_image_space(space, normalized_image=True):
            return IntrinsicConfig()
        is_bytes = is_image_space(space)  # otherwise they have their scale already
        return IntrinsicConfig(
            channels_first=_has_channels_first(model, space), observation_scale=1 / 255 if is_bytes else 1.0
        )

    def _check(self, model: BaseAlgorithm) -> None:
        """Refuse what cannot be rewarded right."""
        space, key = model.observation_space, self._settings["key"]
        parts = tuple(space.spaces) if isinstance(space, spaces.Dict) else ()
        if parts and key is None and set(GOAL_KEYS) <= set(parts):
            key = GOAL_KEYS[0]
        if key not in (parts or (None,)):
            expected = f"one of {', '.join(parts)}" if parts else "None for observations that are arrays"
            raise EnvError(
                f"key: expected {expected}, got {key!r}; "
                f"gymnasium.wrappers.FlattenObservation makes one array of all parts"
            )
        self._key = key
        if getattr(self._space(model), "shape", None) is None:
            raise EnvError(
                f"expected observations that are arrays, got the space {self._space(model)}; "
                f"wrap the environment in gymnasium.wrappers.FlattenObservation"
            )

    def _space(self, model: BaseAlgorithm) -> Any:
        """The space of what the bonus sees."""
        return self._seen(model.observation_space)

    def _seen(self, observations: Any) -> Any:
        """What the bonus sees of observations, or of their space."""
        return observations if self._key is None else observations[self._key]

    def _coefficient(self) -> float:
        """The coefficient now."""
        given = self.coefficient
        return float(given(self.model._current_progress_remaining)) if callable(given) else float(given)

    def _scaled(self, raw: Tensor) -> Tensor:
        """Rewards [...] as they are added to those of the task."""
        normalised = raw if self.normaliser is None else self.normaliser(raw)
        return self._coefficient() * normalised

    def _learn_from(self, batch: Transitions, steps: int) -> Tensor:
        """Learn from all transitions of some steps, and log it under intrinsic/; returns scaled rewards [T, N]."""
        result = self._made.rewards_and_update(batch)
        raw = result.rewards.cpu().view(steps, self.model.n_envs)
        if self.normaliser is not None:
            self.normaliser.update(raw)
        scaled = self._scaled(raw)
        means = {"reward_mean": float(raw.double().mean()), "scaled_mean": float(scaled.double().mean())}
        for name, value in {**means, "coefficient": self._coefficient(), **result.metrics}.items():
            self.logger.record(f"intrinsic/{name}", value)
        return scaled


def _has_channels_first(model: BaseAlgorithm, space: Any) -> bool:
    """Whether the policy takes images as [C, H, W]: its convolutions do, whatever the shape."""
    extractor = getattr(model.policy, "features_extractor_class", None)
    if isinstance(extractor, type) and issubclass(extractor, NatureCNN):
        return True
    looks = looks_channels_first(space.shape)
    return is_image_space(space) and is_image_space_channels_first(space) if looks is None else looks


def flat(values: Array, shape: tuple[int, ...]) -> Tensor:
    """Values of a buffer [steps, environments, ...] as a tensor [steps * environments, *shape], time outermost."""
    return torch.from_numpy(np.ascontiguousarray(values.reshape(-1, *shape)))
