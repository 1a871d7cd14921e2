"""Scores, a sampler and telemetry in a loop of your own with accelerate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from headway.errors import IntegrationError
from headway.integrations.training import Feedback, Metered, Steered
from headway.integrations.versions import require
from headway.signals import Signal
from headway.telemetry import SourceMonitor

require("accelerate")

from accelerate import Accelerator  # noqa: E402

__all__ = ["SourceAccelerator"]


class SourceAccelerator(Metered, Accelerator):
    """An Accelerator whose backward pass scores the samples of a batch, and tells a sampler and a monitor.

        accelerator = SourceAccelerator(sampler=stream)
        model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(stream, batch_size=32))
        for x, y, source in loader:
            losses = F.cross_entropy(model(x), y, reduction="none")
            accelerator.backward(losses, source)  # in place of accelerator.backward(losses.mean())
            optimizer.step()
            optimizer.zero_grad()

    `save_state` and `load_state` keep the states of meter and shares. Accumulation, mixed precision and the division
    of batches among processes are accelerate's.

    Args:
        args: those of the Accelerator.
        signals: what to score with; None for GMC, and the gradient norm if there is a monitor.
        sampler: a sampler, stream or mixture, whose shares follow the scores.
        monitor: follows the sources.
        drive: the name of the signal that the sampler follows; None for the first.
        meter: further arguments of the `Meter`, such as {"every": 4}.
        kwargs: those of the Accelerator.

    Raises:
        IntegrationError: the arguments make no sense.
    """

    def __init__(
        self,
        *args: Any,
        signals: Signal | Sequence[Signal] | None = None,
        sampler: Steered | None = None,
        monitor: SourceMonitor | None = None,
        drive: str | None = None,
        meter: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._feedback = Feedback(signals, sampler, monitor, drive, meter)
        super().__init__(*args, **kwargs)
        if self._feedback.drawing is not None:
            self._feedback.drawing.shard(0, 1)  # accelerate shares the batches out among the processes
        self.register_for_checkpointing(self._feedback)

    def prepare_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        """Prepare a model; the first that can be trained is the one that is scored."""
        training = any(parameter.requires_grad for parameter in model.parameters())
        first = self.meter is None and training and not kwargs.get("evaluation_mode", False)
        meter = self._feedback.attach(model) if first else None
        prepared: nn.Module = super().prepare_model(model, *args, **kwargs)
        if meter is not None:
            meter.wrapped_in(prepared)
        return prepared

    def backward(self, loss: Tensor, source: Tensor | None = None, **kwargs: Any) -> None:
        """Run the backward pass of one loss per sample [B] and score them; of a single loss [], as ever.

        Args:
            loss: the losses of the samples.
            source: the number of each sample's source [B].
            kwargs: those of the Accelerator.

        Raises:
            IntegrationError: the losses come without the sources that a sampler or monitor asks for, or no model is
                prepared.
        """
        if loss.dim():
            if self.meter is None:
                raise IntegrationError(
                    "expected a prepared model, got none; call accelerator.prepare(model, ...) first"
                )
            samples = len(loss)
            loss = self._feedback.loss(loss, source, lambda: self._feedback.consume(samples))
        super().backward(loss, **kwargs)
