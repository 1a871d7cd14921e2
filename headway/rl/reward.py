"""What an intrinsic reward does: a predictor joined with a scorer, or a memory. `make_reward` makes one by name."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import MethodError, StateError
from headway.rl.bonuses import Memory, Predictor
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.scorers import SCORERS, Scorer, SignalScorer
from headway.rl.spaces import Coding
from headway.signals import Signal


@dataclass(frozen=True)
class IntrinsicResult:
    """What one rollout brought.

    Attributes:
        rewards: the intrinsic reward of each transition [N], float32, as the predictor was before it was trained.
        metrics: predictor_loss, forward_loss and inverse_loss (where there are such losses), grad_norm (before it was
            cut), score_mean, score_std, and under_floor for signals with a floor; those of a memory are its own.
    """

    rewards: Tensor
    metrics: Mapping[str, float] = field(default_factory=dict)


class Reward(ABC):
    """An intrinsic reward for transitions: what agents and adapters use.

    Attributes:
        name: of the method.
        config: the settings.
        device: where it computes.
        bonus: the predictor or the memory.
        actions: how actions are written as numbers; None if they do not matter.
    """

    name: str
    config: IntrinsicConfig
    device: torch.device
    bonus: nn.Module
    actions: Coding | None = None

    def rewards_and_update(self, batch: Transitions) -> IntrinsicResult:
        """Reward transitions, then learn from them.

        Args:
            batch: N transitions, usually a whole rollout. N may change from call to call.

        Raises:
            MethodError: NaN or infinity, which would ruin a predictor for good, or actions that there are not.
        """
        rewards, metrics = self._reward_and_learn(self._checked(batch))
        wide = rewards.double()
        spread = {"score_mean": float(wide.mean()), "score_std": float(wide.std(correction=0))}
        return IntrinsicResult(rewards, {**metrics, **spread})

    def rewards(self, batch: Transitions) -> Tensor:
        """The rewards of transitions: [N], float32, on the device. Nothing is learned and nothing changes."""
        return self._reward(self._checked(batch))

    def update(self, batch: Transitions) -> dict[str, float]:
        """Learn from transitions; returns the metrics of `rewards_and_update` that concern learning."""
        return self._learn(self._checked(batch))

    @abstractmethod
    def _reward_and_learn(self, batch: Transitions) -> tuple[Tensor, dict[str, float]]:
        """The rewards of transitions that were checked, from before they are learned from, and metrics of learning."""

    @abstractmethod
    def _reward(self, batch: Transitions) -> Tensor:
        """The rewards of transitions that were checked."""

    @abstractmethod
    def _learn(self, batch: Transitions) -> dict[str, float]:
        """Learn from transitions that were checked; returns metrics."""

    def observe(self, batch: Transitions) -> None:
        """Take transitions into statistics of observations, if there are any; nothing is learned.

        Call it before the first rollout, with what a random agent sees, so that rewards start with good statistics.
        """
        for learner in self.learners():
            learner.predictor.observe(learner._checked(batch))

    def end_episodes(self, envs: Sequence[int] | None = None) -> None:  # noqa: B027 - most bonuses do not ask
        """Note that environments were reset in the middle of an episode; None for all of them."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that later rewards depend on; holds only tensors, numbers and text."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            StateError: it is that of another method, or of networks of another size.
        """

    @property
    def is_episodic(self) -> bool:
        """Whether it looks at single episodes, so that transitions need `envs` and `ended`."""
        return getattr(self.bonus, "is_episodic", False)

    def learners(self) -> Iterator[IntrinsicReward]:
        """The predictors that it trains, each with its scorer."""
        return iter(())

    def _checked(self, batch: Transitions) -> Transitions:
        """The transitions on the device, after a look at whether they make sense."""
        if not isinstance(batch, Transitions):
            raise MethodError(f"expected Transitions(obs, actions, next_obs), got {type(batch).__name__}")
        batch = batch.to(self.device)
        for name in ("obs", "actions", "next_obs"):
            values = getattr(batch, name)
            if values.is_floating_point() and not values.isfinite().all():
                raise MethodError(
                    f"{name}: expected finite numbers, got NaN or infinity; nothing was rewarded or learned"
                )
        if self.actions is not None:
            self.actions.check(batch.actions)
        return batch

    def _check_state(self, state: Mapping[str, Any], part: str, own: Mapping[str, Any]) -> None:
        """Refuse the state of another method, or one with a part whose tensors have other shapes than these."""
        if state.get("schema") != 1 or state.get("name") != self.name:
            raise StateError(
                f"expected the state of a reward {self.name!r} of schema 1, got {state.get('name')!r} "
                f"of schema {state.get('schema')!r}"
            )
        for name, tensor in own.items():
            if isinstance(tensor, Tensor):
                found = state[part].get(name)
                if found is None or found.shape != tensor.shape:
                    got = "none" if found is None else list(found.shape)
                    raise StateError(f"{name}: expected shape {list(tensor.shape)}, got {got}")


class MemoryReward(Reward):
    """The scores of a memory as rewards; the predictors that it has, if any, are trained.

    Args:
        memory: what to remember.
        config: the settings that it was made with.
        device: where it is.
        name: of the method.
        scorer: by name, for the predictor that the memory says.
        generator: shuffles the minibatches of predictors; None for one with seed 0.

    Raises:
        MethodError: a scorer for a memory that has nothing to score.
    """

    def __init__(
        self,
        memory: Memory,
        config: IntrinsicConfig | None = None,
        device: str | torch.device = "cpu",
        name: str | None = None,
        scorer: str = "error",
        generator: torch.Generator | None = None,
    ) -> None:
        self.bonus = self.memory = memory
        self.config = IntrinsicConfig() if config is None else config
        self.device = torch.device(device)
        self.actions = memory.actions
        self.name = name or type(memory).__name__.lower()
        if scorer != "error" and memory.scored is None:
            raise MethodError(
                f"expected a memory alone, got {self.name!r} with the scorer {scorer!r}: it has a score of its own"
            )
        memory.scorer = scorer
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        self._learners = {
            each: IntrinsicReward(
                getattr(memory, each), scorer if each == memory.scored else "error", self.config, generator, each
            )
            for each in memory.trained
        }
        memory.measures = {each: learner.rewards for each, learner in self._learners.items()}

    @torch.no_grad()
    def _reward_and_learn(self, batch: Transitions) -> tuple[Tensor, dict[str, float]]:
        scores = self.memory.remember_and_score(batch).float()
        return scores, self._train(batch)

    @torch.no_grad()
    def _reward(self, batch: Transitions) -> Tensor:
        return self.memory.score(batch).float()

    @torch.no_grad()
    def _learn(self, batch: Transitions) -> dict[str, float]:
        self.memory.remember(batch)
        return self._train(batch)

    def end_episodes(self, envs: Sequence[int] | None = None) -> None:
        """See `Reward.end_episodes`."""
        self.memory.end_episodes(envs)

    def learners(self) -> Iterator[IntrinsicReward]:
        """See `Reward.learners`."""
        return iter(self._learners.values())

    def _train(self, batch: Transitions) -> dict[str, float]:
        """Train all predictors; returns their metrics and those of the memory."""
        metrics = [learner.update(batch) for learner in self.learners()]
        if len(metrics) > 1:
            pairs = zip(self._learners, metrics, strict=True)
            metrics = [{f"{name}_{key}": value for key, value in own.items()} for name, own in pairs]
        return {key: value for own in [*metrics, self.memory.metrics()] for key, value in own.items()}

    def state_dict(self) -> dict[str, Any]:
        """See `Reward.state_dict`."""
        learners = {name: learner.state_dict() for name, learner in self._learners.items()}
        for state in learners.values():
            del state["predictor"]  # it is part of the memory
        return {"schema": 1, "name": self.name, "memory": self.memory.state_dict(), "learners": learners}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Reward.load_state_dict`."""
        self._check_state(state, "memory", self.memory.state_dict())
        self.memory.load_state_dict(state["memory"])
        for name, learner in self._learners.items():
            learner.load_state_dict({**state["learners"][name], "predictor": learner.predictor.state_dict()})

    def __repr__(self) -> str:
        return f"MemoryReward({self.name}: {type(self.memory).__name__})"


class IntrinsicReward(Reward):
    """Rewards transitions by how a predictor fares on them, and trains the predictor.

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
        self.bonus = self.predictor = predictor
        self.actions = predictor.actions
        self.config = IntrinsicConfig() if config is None else config
        if isinstance(scorer, str):
            scorer = SCORERS.find(scorer)(self.config, predictor)
        self.scorer = scorer if isinstance(scorer, Scorer) else SignalScorer(scorer)
        self.name = name or f"{type(predictor).__name__.lower()}+{self.scorer.name}"
        self._generator = torch.Generator().manual_seed(0) if generator is None else generator
        self._trained = [p for p in predictor.parameters() if p.requires_grad]
        self.device = self._trained[0].device
        rate = predictor.learning_rate if self.config.learning_rate is None else self.config.learning_rate
        self._optimizer = torch.optim.Adam(self._trained, rate, fused=self.device.type in ("cpu", "cuda"))
        self.scorer.bind(predictor)

    def state_dict(self) -> dict[str, Any]:
        """See `Reward.state_dict`."""
        return {
            "schema": 1,
            "name": self.name,
            "predictor": self.predictor.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scorer": self.scorer.state_dict(),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Reward.load_state_dict`."""
        self._check_state(state, "predictor", self.predictor.state_dict())
        self.scorer.load_state_dict(state["scorer"])
        self.predictor.load_state_dict(state["predictor"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._generator.set_state(state["generator"].cpu())

    def learners(self) -> Iterator[IntrinsicReward]:
        """See `Reward.learners`."""
        yield self

    def __repr__(self) -> str:
        return f"IntrinsicReward({self.name}: {type(self.predictor).__name__} scored by {self.scorer.name})"

    @property
    def _in_one_pass(self) -> bool:
        config = self.config
        return config.epochs == 1 and config.minibatches == 1 and config.train_share == 1

    def _reward_and_learn(self, batch: Transitions) -> tuple[Tensor, dict[str, float]]:
        if not self._in_one_pass:
            return self._reward(batch), self._learn(batch)
        scores, metrics = self._train(batch, is_scored=True)
        assert scores is not None
        return scores, metrics

    def _reward(self, batch: Transitions) -> Tensor:
        with torch.set_grad_enabled(self.scorer.uses_gradients):
            prediction = self.predictor.predict(batch, train=False)
            return self.scorer.score(prediction, batch.actions).detach().float()

    def _learn(self, batch: Transitions) -> dict[str, float]:
        return self._train(batch)[1]

    def _train(self, batch: Transitions, is_scored: bool = False) -> tuple[Tensor | None, dict[str, float]]:
        """Train with all parts of a batch; returns the scores of the last part, if asked for, and the mean metrics."""
        is_new = self.predictor.is_new
        if is_new:
            self.predictor.observe(batch)
        history: list[dict[str, Tensor]] = []
        for part in self._parts(self.predictor.prepare(batch)):
            metrics, scores = self._step(part, is_scored)
            history.append(metrics)
        if not is_new:
            self.predictor.observe(batch)
        self.scorer.end_update()
        means = {name: float(torch.stack([each[name] for each in history]).mean()) for name in history[0]}
        return scores, {**means, **self.scorer.metrics(len(part))}

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
    def _step(self, batch: Transitions, is_scored: bool) -> tuple[dict[str, Tensor], Tensor | None]:
        """One training step; returns its metrics and the scores from before it, if asked for."""
        self._optimizer.zero_grad()
        predict = partial(self.predictor.predict, batch, train=True)
        scores = None
        if is_scored:
            prediction = predict()
            scores = self.scorer.backward(prediction, batch.actions).detach().float()
        else:
            prediction = self.scorer.train(predict, batch.actions)
        if prediction.weight != 1:
            for parameter in self.predictor.scored.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(prediction.weight)
        if prediction.rest is not None:
            prediction.rest.backward()
        limit = math.inf if self.config.max_grad_norm is None else self.config.max_grad_norm
        norm = nn.utils.clip_grad_norm_(self._trained, limit)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return {"predictor_loss": prediction.total, **prediction.metrics, "grad_norm": norm}, scores
