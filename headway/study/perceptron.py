"""A perceptron that is trained and scored by a prepared list of operations.

`headway.Meter` finds out in every batch what a model does with it. A perceptron does the same every time, so the
controlled study, which spends hours on one, skips the graph and the hooks. The forms and the signals are those of the
library, and the numbers are the meter's, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.grads.persample import BiasOf, RankOne, Reduction
from headway.grads.scratch import Scratch
from headway.moments import Flat, Moments
from headway.selection.networks import backpropagate, record
from headway.signals import Batch, Scope, Signal


class PerceptronMeter:
    """`headway.Meter` for a classifier of Linear layers with ReLU between them, and one signal.

    Args:
        model: as `headway.selection.perceptron` makes it.
        signal: what to score with; it looks at all parameters.
    """

    def __init__(self, model: nn.Sequential, signal: Signal) -> None:
        """Set up the moments and the signal's memory."""
        self._model = model
        self._signal = signal
        self._parameters = dict(model.named_parameters())
        self._moments = None if signal.decay is None else Moments(self._parameters, signal.decay)
        self._scope = Scope(self._parameters, self._moments, warns=False)  # the study reports the share in its metrics
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
        if self._moments is not None:
            self._moments.update(self._gradients)
        return batch.losses, scores

    def _reduce(
        self,
        plan: Mapping[str, Mapping[str, Reduction]],
        seen: Sequence[Tensor],
        at_outputs: Sequence[Tensor],
        share: Tensor,
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

    def moments(self) -> Moments:
        """The moments of a signal that has some."""
        return self._scope.require_moments()

    def state_dict(self) -> dict[str, Any]:
        """Everything that later scores depend on, as `headway.Meter` has it."""
        return {
            "schema": 1,
            "batches": self._batches,
            "moments": [] if self._moments is None else [self._moments.state_dict()],
            "memory": {self._signal.name: {key: value.clone() for key, value in self._scope.memory.items()}},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        for key, value in state["memory"][self._signal.name].items():
            self._scope.memory[key].copy_(value)
        if self._moments is not None:
            self._moments.load_state_dict(state["moments"][0])
        self._scope.version = ()
        self._batches = state["batches"]
