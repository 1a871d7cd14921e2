"""One trial of the controlled study: dynamics model, signal and actor, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data import Dataset
from headway.errors import ProtocolError
from headway.grads.persample import BiasOf, RankOne, Reduction
from headway.grads.scratch import Scratch
from headway.moments import Flat, Moments
from headway.selection import Actor, ActorConfig, perceptron
from headway.selection.networks import Adam, backpropagate, record
from headway.signals import Batch, MomentSignal, Scope, Signal
from headway.signals.base import load_state
from headway.study.image_environment import Environment
from headway.study.protocols.classification import Protocol
from headway.study.signals import SIGNALS

TEST_CHUNK = 2560
Plan: TypeAlias = Mapping[str, Mapping[str, Reduction]]
"""The reductions that a signal needs, by its own keys and the parameters."""


class PerceptronMeter:
    """`headway.Meter` for a classifier of Linear layers with ReLU between them, and one signal.

    The meter finds out in every batch what a model does with it. A perceptron does the same every time, so the
    controlled study, which spends hours on one, skips the graph and the hooks: a prepared list of operations trains and
    scores it. The forms and the signals are those of the library, and the numbers are the meter's, bit for bit.
    """

    def __init__(self, model: nn.Sequential, signal: Signal) -> None:
        self._model = model
        self._signal = signal
        self._parameters = dict(model.named_parameters())
        self.moments = None if signal.decay is None else Moments(self._parameters, signal.decay)
        self._scope = Scope(self._parameters, self.moments, warns=False)  # the study reports the share in its metrics
        signal.init(self._scope)
        self._gradients = Flat(self._parameters)
        for name, parameter in self._parameters.items():
            parameter.grad = self._gradients[name]
        self._scratch = Scratch()
        self._batches = 0

    def backward(self, pixels: Tensor, labels: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Run a batch forwards and backwards, and score its samples."""
        seen = record(self._model, pixels)
        seen[-1].requires_grad_()
        losses = F.cross_entropy(seen[-1], labels, reduction="none")
        weights = torch.full_like(losses.detach(), 1.0 / len(losses))
        (gradient,) = torch.autograd.grad(losses, seen[-1], weights)
        batch = Batch(losses.detach(), groups)
        self._signal.validate(batch)
        plan = self._signal.reductions(self._scope, batch)
        at_outputs = backpropagate(self._model, seen, gradient)
        values = self._reduce(plan, seen, at_outputs, weights.reciprocal()) if plan else {}
        scores = self._signal.scores(self._scope, batch, values)
        self._signal.observe(self._scope, batch)
        self._batches += 1
        if self.moments is not None:
            self.moments.update(self._gradients)
        return batch.losses, scores

    def _reduce(
        self, plan: Plan, seen: Sequence[Tensor], at_outputs: Sequence[Tensor], share: Tensor
    ) -> dict[str, dict[str, Tensor]]:
        """The reductions of the samples' own gradients, by the signal's key and the parameter."""
        places, found = [], []
        names = iter(self._parameters)
        for inputs, outputs in zip(seen, at_outputs, strict=False):
            for form in (RankOne(inputs, outputs, is_positive=inputs is not seen[0]), BiasOf(outputs)):
                name = next(names)
                for key, own in plan.items():
                    if name in own:
                        places.append((key, name, own[name].kind))
                        found += form.reduce([own[name]], self._scratch, None)
        self._scratch.forget()
        scaled = (torch.stack(found) * share).unbind()
        values: dict[str, dict[str, Tensor]] = {key: {} for key in plan}
        for (key, name, kind), value in zip(places, scaled, strict=True):
            values[key][name] = value * share if kind == "sq" else value
        return values

    def end_epoch(self) -> None:
        """Tell the signal that an epoch has ended."""
        self._signal.end_epoch(self._scope)

    def state_dict(self) -> dict[str, Any]:
        """Everything that later scores depend on, as `headway.Meter` has it."""
        return {
            "schema": 1,
            "batches": self._batches,
            "moments": [] if self.moments is None else [self.moments.state_dict()],
            "memory": {self._signal.name: {key: value.clone() for key, value in self._scope.memory.items()}},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        moments = {} if self.moments is None else {self.moments.decay: self.moments}
        load_state(state, moments, {self._signal.name: self._scope}, strict=True)
        self._batches = state["batches"]


class UniformDraws:
    """In the place of an actor: every arm has the same probability, and nothing is learned."""

    def __init__(self, arms: int, generator: torch.Generator, device: str) -> None:
        self._arms, self._generator, self._device = arms, generator, device
        self.entropy = torch.tensor(float(arms)).log()

    def draw(self, samples: int) -> Tensor:
        """An arm for each of B samples: [B]."""
        return torch.randint(self._arms, (samples,), generator=self._generator).to(self._device)

    def learn(self, scores: Tensor) -> None:
        """Scores make no difference."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the generator belongs to whoever passed it in."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from nothing."""


class RunningMeans:
    """The greatest running mean of an arm's scores, by which scores are divided on their way to the actor."""

    def __init__(self, arms: int, device: str, rate: float = 0.01) -> None:
        self._rate = rate
        self.sums = torch.zeros(2, arms, dtype=torch.float64, device=device)  # of scores, and of the weights so far

    def scale(self, scores: Tensor, arms: Tensor) -> Tensor:
        """Take in the scores [B] of a batch and return them in units of the greatest mean."""
        ones = torch.ones_like(scores)
        totals = torch.zeros_like(self.sums).index_add_(1, arms, torch.stack([scores.abs(), ones]).double())
        means = torch.stack([totals[0] / totals[1].clamp(min=1), torch.ones_like(totals[1])])
        self.sums = torch.where(totals[1] > 0, self.sums.lerp(means, self._rate), self.sums)
        best = (self.sums[0] / self.sums[1].clamp(min=self._rate)).max()
        return torch.where(best > 0, scores / best.to(scores), scores)


class Trial:
    """Everything that a controlled run consists of."""

    def __init__(
        self, dataset: Dataset, condition: str, signal: str, protocol: Protocol, seed: int, device: str = "cpu"
    ) -> None:
        self.protocol = protocol
        self._device = device
        self._generator = torch.Generator().manual_seed(seed)
        self.environment = Environment(dataset, condition, protocol, self._generator, device)
        if self.batches < 1:
            raise ProtocolError(
                f"batch_size: expected at most the {self.environment.samples} images of {dataset.name}, "
                f"got {protocol.batch_size}"
            )
        arms = self.environment.arms
        widths = [self.environment.inputs, protocol.hidden, protocol.hidden, len(dataset.class_names)]
        self.model = perceptron(widths, self._generator).to(device)
        self._optimizer = Adam(list(self.model.parameters()), protocol.learning_rate)
        self.actor = self._make_actor(arms, signal)
        self._signal = SIGNALS.find(signal)(protocol, arms)
        self.meter = PerceptronMeter(self.model, self._signal)
        self._running = RunningMeans(arms, device)
        self.epoch = 0
        self._parts: dict[str, Any] = {
            "model": self.model,
            "optimizer": self._optimizer,
            "meter": self.meter,
            "actor": self.actor,
            "environment": self.environment,
        }
        self._seen: list[tuple[Tensor, ...]] = []  # arms, losses and scores of this epoch's batches

    def _make_actor(self, arms: int, signal: str) -> Actor | UniformDraws:
        p = self.protocol
        if signal == "uniform" and p.uniform == "arms":
            return UniformDraws(arms, self._generator, self._device)
        hidden, betas = (p.actor_hidden, p.actor_hidden), (p.actor_beta1, p.actor_beta2)
        config = ActorConfig(arms, p.actor, p.actor_inputs, hidden, p.actor_learning_rate, betas, p.entropy_weight)
        return Actor(config, self._generator, self._device)

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return self.environment.samples // self.protocol.batch_size

    @property
    def step(self) -> int:
        """Batches so far."""
        return self.epoch * self.batches + len(self._seen)

    def train_batch(self, mark: Callable[[str], None] = lambda phase: None) -> None:
        """Draw a batch, learn from it, score it, and let the actor learn from the scores."""
        arms = self.actor.draw(self.protocol.batch_size)
        mark("choose arms")
        pixels, labels = self.environment.draw(arms)
        mark("draw samples")
        losses, scores = self.meter.backward(pixels, labels, arms)
        mark("model and scores")
        self._optimizer.advance()
        mark("optimizer")
        self.actor.learn(scores if self.protocol.actor_scores == "raw" else self._running.scale(scores, arms))
        mark("actor")
        self._seen.append((arms, losses, scores))

    def run_epoch(self, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Train to the end of the epoch, then test. Returns a row of metrics, or None if asked to stop before."""
        while len(self._seen) < self.batches:
            if should_stop():
                return None
            self.train_batch()
        row = {"epoch": self.epoch + 1, **self._training_row(), **self.test()}
        self.meter.end_epoch()
        self.epoch += 1
        self._seen.clear()
        return row

    def _training_row(self) -> dict[str, Any]:
        """What the epoch's batches were, by arm."""
        arms, losses, scores = (torch.cat(column) for column in zip(*self._seen, strict=True))
        counts = torch.bincount(arms, minlength=self.environment.arms)
        row: dict[str, Any] = {
            "train_count": counts.tolist(),
            "draw_share": (counts / counts.sum()).tolist(),
            "train_loss": _mean_by_arm(losses, arms, counts),
            "score_mean": _mean_by_arm(scores, arms, counts),
            "policy_entropy": float(self.actor.entropy),
        }
        moments = self.meter.moments
        if moments is not None and isinstance(self._signal, MomentSignal):
            floor = self._signal.floor_for(self.protocol.batch_size, moments)
            row["under_floor"] = float(moments.share_under(floor))
            row["momentum_within_bound"] = float(moments.share_within_bound())
        return row

    @torch.no_grad()
    def test(self) -> dict[str, Any]:
        """The losses of a test over all arms, as part of a row of metrics."""
        arms, number = self.environment.arms, self.protocol.test_batches * self.protocol.batch_size
        if self.protocol.test_draw == "uniform":
            drawn = torch.randint(arms, (number,), generator=self._generator)
        else:
            drawn = torch.arange(arms).repeat(max(1, number // arms))
        pieces = []
        for chunk in drawn.split(TEST_CHUNK):
            pixels, labels = self.environment.draw(chunk, test=True)
            pieces.append(F.cross_entropy(self.model(pixels), labels, reduction="none"))
        losses = torch.cat(pieces)
        counts = torch.bincount(drawn, minlength=arms)
        return {
            "test_count": counts.tolist(),
            "test_loss": _mean_by_arm(losses, drawn.to(losses.device), counts),
            "test_loss_mean": float(losses.double().mean()),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        return {
            **{name: part.state_dict() for name, part in self._parts.items()},
            "running": self._running.sums.clone(),
            "generator": self._generator.get_state(),
            "epoch": self.epoch,
            "seen": [list(batch) for batch in self._seen],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        self._running.sums.copy_(state.get("running", self._running.sums))
        self._generator.set_state(state["generator"])
        self.epoch = state["epoch"]
        self._seen = [tuple(tensor.to(self._device) for tensor in batch) for batch in state["seen"]]


def _mean_by_arm(values: Tensor, arms: Tensor, counts: Tensor) -> list[float]:
    """The mean of each arm's values; NaN for an arm without any."""
    sums = torch.zeros(len(counts), dtype=torch.float64, device=values.device).index_add_(0, arms, values.double())
    return (sums.cpu() / counts.cpu()).tolist()
