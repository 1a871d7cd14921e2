"""Intrinsic rewards: a predictor joined with a scorer.

reward = make_reward("icm+gmc", env.single_observation_space, env.single_action_space)
for each rollout:
    result = reward.rewards_and_update(Transitions(obs, actions, next_obs))
    rewards += coefficient * result.rewards
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import EnvError, MethodError, StateError, did_you_mean
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.packing import leaves
from headway.rl.predictors import PREDICTORS, Prediction, Predictor
from headway.rl.scorers import SCORERS, Scorer, SignalScorer
from headway.rl.spaces import is_image, looks_channels_first
from headway.rl.transitions import Transitions
from headway.signals import Signal

__all__ = [
    "METHODS",
    "IntrinsicConfig",
    "IntrinsicResult",
    "IntrinsicReward",
    "Method",
    "Transitions",
    "make_reward",
    "parse_method",
]

METHODS = ("ppo", "forward", "icm", "rnd", "gmc", "icm+gmc", "rnd+gmc")
"""The methods with a name of their own; any predictor and scorer can be joined by a plus."""

_SHORT = {"gmc": "forward+gmc"}


@dataclass(frozen=True)
class IntrinsicResult:
    """What one rollout brought.

    Attributes:
        rewards: the intrinsic reward of each transition [N], float32, as the predictor was before it was trained.
        metrics: predictor_loss, forward_loss and inverse_loss (where there are such losses), grad_norm (before it was
            cut), score_mean, score_std, and under_floor for signals with a floor.
    """

    rewards: Tensor
    metrics: Mapping[str, float] = field(default_factory=dict)


class IntrinsicReward:
    """Pays for transitions, and trains the predictor that the pay depends on.

    Args:
        predictor: what to predict.
        scorer: how to score it: a scorer, a signal such as `headway.GMC(beta=0.99)`, or "error".
        config: how the predictor is trained.
        generator: shuffles minibatches; None for one with seed 0.
        name: of the method.
    """

    def __init__(
        self,
        predictor: Predictor,
        scorer: Scorer | Signal | str = "error",
        config: IntrinsicConfig | None = None,
        generator: torch.Generator | None = None,
        name: str | None = None,
    ) -> None:
        """Bind the scorer to the predictor."""
        self.predictor = predictor
        self.config = IntrinsicConfig() if config is None else config
        self.scorer = _scorer(scorer, self.config, predictor)
        self.name = name or f"{type(predictor).__name__.lower()}+{self.scorer.name}"
        self._generator = torch.Generator().manual_seed(0) if generator is None else generator
        self._trained = [p for p in predictor.parameters() if p.requires_grad]
        self.device = self._trained[0].device
        rate = predictor.learning_rate if self.config.learning_rate is None else self.config.learning_rate
        self._optimizer = torch.optim.Adam(self._trained, rate, fused=self.device.type in ("cpu", "cuda"))
        self.scorer.bind(predictor)

    # What users call

    def rewards_and_update(self, batch: Transitions) -> IntrinsicResult:
        """Pay for transitions, then train the predictor with them; with one step, in one pass.

        Args:
            batch: N transitions, usually a whole rollout. N may change from call to call.

        Raises:
            MethodError: NaN or infinity, which would ruin the predictor for good, or actions that there are not.
        """
        batch = self._taken_in(batch)
        if self._in_one_pass:
            metrics, scores = self._update(batch)
        else:
            scores = self._scores(batch)
            metrics, _ = self._update(batch)
        return IntrinsicResult(scores, {**metrics, **self._score_metrics(scores)})

    def rewards(self, batch: Transitions) -> Tensor:
        """Pay for transitions: [N], float32, on the predictor's device. Nothing is trained and nothing changes."""
        return self._scores(self._taken_in(batch))

    def update(self, batch: Transitions) -> dict[str, float]:
        """Train the predictor with transitions; returns the metrics of `rewards_and_update` that concern training."""
        metrics, _ = self._update(self._taken_in(batch))
        return metrics

    def observe(self, batch: Transitions) -> None:
        """Take transitions into the predictor's statistics of observations, if it has any; nothing is trained.

        Call it before the first rollout, with what a random agent sees, so that rewards start with good statistics.
        """
        self.predictor.observe(self._taken_in(batch))

    # State

    def state_dict(self) -> dict[str, Any]:
        """Everything that later rewards depend on; holds only tensors, numbers and text."""
        return {
            "schema": 1,
            "name": self.name,
            "predictor": self.predictor.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scorer": self.scorer.state_dict(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            StateError: it is that of another method, or of networks of another size.
        """
        if state.get("schema") != 1 or state.get("name") != self.name:
            raise StateError(
                f"expected the state of a reward {self.name!r} of schema 1, got {state.get('name')!r} "
                f"of schema {state.get('schema')!r}"
            )
        own = self.predictor.state_dict()
        for name, tensor in own.items():
            found = state["predictor"].get(name)
            if found is None or found.shape != tensor.shape:
                raise StateError(
                    f"{name}: expected shape {list(tensor.shape)}, got {'none' if found is None else list(found.shape)}"
                )
        self.scorer.load_state_dict(state["scorer"])
        self.predictor.load_state_dict(state["predictor"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._generator.set_state(state["generator"].cpu())

    def __repr__(self) -> str:
        """The method and its parts."""
        return f"IntrinsicReward({self.name}: {type(self.predictor).__name__} scored by {self.scorer.name})"

    # One update

    def _taken_in(self, batch: Transitions) -> Transitions:
        """The transitions on the device, after a look at whether they make sense."""
        if not isinstance(batch, Transitions):
            raise MethodError(f"expected Transitions(obs, actions, next_obs), got {type(batch).__name__}")
        batch = batch.to(self.device)
        for name in ("obs", "actions", "next_obs"):
            values = getattr(batch, name)
            if values.is_floating_point() and not values.isfinite().all():
                raise MethodError(f"{name}: expected finite numbers, got NaN or infinity; nothing was paid or learned")
        if self.predictor.actions is not None:
            self.predictor.actions.check(batch.actions)
        return batch

    @property
    def _in_one_pass(self) -> bool:
        config = self.config
        return config.epochs == 1 and config.minibatches == 1 and config.train_share == 1

    def _scores(self, batch: Transitions) -> Tensor:
        with torch.set_grad_enabled(self.scorer.uses_gradients):
            prediction = self.predictor.predict(batch, train=False)
            return self.scorer.score(prediction, batch.actions).detach().float()

    def _update(self, batch: Transitions) -> tuple[dict[str, float], Tensor]:
        """Train with all parts of a batch; returns the mean metrics, and the scores of the last part."""
        is_new = self.predictor.is_new
        if is_new:
            self.predictor.observe(batch)
        history: list[dict[str, Tensor]] = []
        for part in self._parts(batch):
            metrics, scores = self._step(part)
            history.append(metrics)
        if not is_new:
            self.predictor.observe(batch)
        self.scorer.end_update()
        means = {name: float(torch.stack([each[name] for each in history]).mean()) for name in history[0]}
        return {**means, **self.scorer.metrics(len(part))}, scores

    def _parts(self, batch: Transitions) -> Iterator[Transitions]:
        """Minibatches of every epoch, shuffled; the batch itself if that is all."""
        if self._in_one_pass:
            yield batch
            return
        kept = max(1, round(self.config.train_share * len(batch)))
        chosen = torch.randperm(len(batch), generator=self._generator)[:kept]
        size = math.ceil(kept / self.config.minibatches)
        for _ in range(self.config.epochs):
            order = chosen[torch.randperm(kept, generator=self._generator)]
            for indices in order.split(size):
                yield batch[indices.to(self.device)]

    @torch.enable_grad()
    def _step(self, batch: Transitions) -> tuple[dict[str, Tensor], Tensor]:
        """One training step; returns its metrics and the scores from before it."""
        self._optimizer.zero_grad()
        prediction = self.predictor.predict(batch, train=True)
        scores = self.scorer.backward(prediction, batch.actions)
        self._add_rest(prediction)
        limit = math.inf if self.config.max_grad_norm is None else self.config.max_grad_norm
        norm = nn.utils.clip_grad_norm_(self._trained, limit)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return {"predictor_loss": prediction.total, **prediction.metrics, "grad_norm": norm}, scores.detach().float()

    def _add_rest(self, prediction: Prediction) -> None:
        """From the gradient of the mean of the losses to that of the training loss."""
        if prediction.weight != 1:
            for parameter in self.predictor.scored.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(prediction.weight)
        if prediction.rest is not None:
            prediction.rest.backward()

    def _score_metrics(self, scores: Tensor) -> dict[str, float]:
        wide = scores.double()
        return {"score_mean": float(wide.mean()), "score_std": float(wide.std(correction=0))}


@dataclass(frozen=True)
class Method:
    """A predictor and a scorer by name."""

    predictor: str
    scorer: str


def parse_method(name: str) -> Method | None:
    """What a method's name stands for; None for "ppo", which pays nothing.

    Raises:
        MethodError: there is no such method; the message lists the names.
    """
    if name == "ppo":
        return None
    predictor, _, scorer = _SHORT.get(name, name).partition("+")
    scorer = scorer or ("error" if "+" not in name else "")
    if predictor not in PREDICTORS.names() or scorer not in SCORERS.names():
        raise MethodError(
            f"expected a method out of {', '.join(METHODS)}, or a predictor ({', '.join(PREDICTORS.names())}) and "
            f"a scorer ({', '.join(SCORERS.names())}) joined by '+', got {name!r}{did_you_mean(name, METHODS)}"
        )
    return Method(predictor, scorer)


def make_reward(
    method: str,
    observation_space: Any,
    action_space: Any,
    config: IntrinsicConfig | None = None,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> IntrinsicReward | None:
    """Make the intrinsic reward of a method.

    Args:
        method: such as "icm+gmc".
        observation_space: of one environment (`env.single_observation_space`).
        action_space: of one environment.
        config: settings; None for the defaults, which take images as [H, W, C].
        device: where the networks live.
        seed: of the weights, and of the order of minibatches.

    Returns:
        None for "ppo".

    Raises:
        MethodError: no such method.
        EnvError: a space that the predictor cannot handle, or without a config images that look like [C, H, W].
    """
    parsed = parse_method(method)
    if parsed is None:
        return None
    config = default_for(observation_space) if config is None else config
    generator = torch.Generator().manual_seed(seed)
    predictor = PREDICTORS.find(parsed.predictor)(observation_space, action_space, config, generator).to(device)
    scorer = SCORERS.find(parsed.scorer)(config, predictor)
    return IntrinsicReward(predictor, scorer, config, generator, name=method)


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


def _scorer(scorer: Scorer | Signal | str, config: IntrinsicConfig, predictor: Predictor) -> Scorer:
    if isinstance(scorer, Scorer):
        return scorer
    if isinstance(scorer, str):
        return SCORERS.find(scorer)(config, predictor)
    return SignalScorer(scorer)
