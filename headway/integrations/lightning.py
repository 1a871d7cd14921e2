"""Scores, a sampler and telemetry in a Lightning Trainer, by a callback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headway.errors import IntegrationError
from headway.integrations.feedback import Feedback
from headway.integrations.losses import metered_loss
from headway.integrations.versions import require
from headway.meter import Meter
from headway.selection import SourceSampler
from headway.signals import Signal
from headway.telemetry import SourceMonitor

require("lightning")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402

__all__ = ["SourceCallback"]


class SourceCallback(Callback):
    """Scores the samples of every training batch, and tells a sampler and a monitor.

    The module's `training_step` returns one loss per sample, and the source of each:

        def training_step(self, batch, batch_idx):
            x, y, source = batch
            losses = F.cross_entropy(self.net(x), y, reduction="none")
            return {"losses": losses, "source": source}

        sampler = SourceSampler({"web": range(1000), "books": range(1000, 1400)})
        Trainer(callbacks=[SourceCallback(sampler=sampler)], use_distributed_sampler=False)

    The loss is their mean, and its backward pass gives the scores too. Automatic optimisation, accumulation, gradient
    clipping and mixed precision stay Lightning's. The states of meter, sampler and monitor are in the checkpoint.

    Args:
        signals: what to score with; None for GMC, and the gradient norm if there is a monitor.
        sampler: the sampler of the training DataLoader, whose shares follow the scores.
        monitor: follows the sources.
        drive: the name of the signal that the sampler follows; None for the first.
        losses: the key of the losses in what `training_step` returns.
        source: the key of the sources' numbers.
        log: log the share of every source, under "share/NAME".
        model: gives the module to meter; None for the whole LightningModule.
        meter: further arguments of the `Meter`, such as {"every": 4}.

    Attributes:
        scores: those of the latest batch, by signal.

    Raises:
        IntegrationError: the arguments make no sense.
    """

    def __init__(
        self,
        signals: Signal | Sequence[Signal] | None = None,
        *,
        sampler: SourceSampler | None = None,
        monitor: SourceMonitor | None = None,
        drive: str | None = None,
        losses: str = "losses",
        source: str = "source",
        log: bool = True,
        model: Callable[[LightningModule], torch.nn.Module] | None = None,
        meter: Mapping[str, Any] | None = None,
    ) -> None:
        """Touch no model yet."""
        self._feedback = Feedback(signals, sampler, monitor, drive, meter)
        self._keys = (losses, source)
        self._log = log
        self._model = model
        self._checked = False

    @property
    def meter(self) -> Meter | None:
        """The meter, once training has begun."""
        return self._feedback.meter

    @property
    def scores(self) -> dict[str, Tensor] | None:
        """See the class."""
        return self._feedback.scores

    # Hooks of Lightning

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """See to it that `training_step` hands out a metered loss."""
        if stage != "fit":
            return
        if not pl_module.automatic_optimization:
            raise IntegrationError(
                "expected automatic optimisation, got a module that optimises by itself; "
                "call meter.backward(losses) there in place of manual_backward"
            )
        if self._feedback.sampler is not None and trainer.world_size > 1:
            self._feedback.sampler.shard(trainer.global_rank, trainer.world_size)
        step = pl_module.training_step

        @functools.wraps(step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            return self._with_metered_loss(step(*args, **kwargs))

        pl_module.__dict__["training_step"] = training_step

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach the meter; the module is on its device by now, and has not run yet."""
        self._feedback.attach(pl_module if self._model is None else self._model(pl_module))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make sure that the loader draws from the sampler."""
        sampler = self._feedback.sampler
        if sampler is not None and not any(own is sampler for own in _samplers(trainer.train_dataloader)):
            raise IntegrationError(
                "expected the callback's sampler in the training DataLoader, got another; pass it to the loader as "
                "sampler=, and use Trainer(use_distributed_sampler=False): it shares its indices among processes itself"
            )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the shares."""
        sampler = self._feedback.sampler
        if self._log and sampler is not None:
            shares = {f"share/{name}": share for name, share in sampler.weights.items()}
            pl_module.log_dict(shares, batch_size=1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell signals that look back over epochs."""
        if self.meter is not None:
            self.meter.end_epoch()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module as it was."""
        if stage != "fit":
            return
        pl_module.__dict__.pop("training_step", None)
        self._feedback.detach()
        if self._feedback.monitor is not None:
            self._feedback.monitor.close()

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        return self._feedback.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._feedback.load_state_dict(state_dict)

    # One batch

    def _with_metered_loss(self, outputs: Any) -> Any:
        if outputs is None:  # Lightning skips such a batch
            return None
        losses, sources = self._read(outputs)
        meter = self._feedback.meter
        assert meter is not None
        if not self._checked:  # once: it makes the host wait for the device
            _check_loss(outputs, losses)
            self._checked = True
        loss = metered_loss(meter, losses, lambda scores: self._feedback.hear(sources, losses, scores))
        return {**outputs, "loss": loss}

    def _read(self, outputs: Any) -> tuple[Tensor, Tensor | None]:
        key, source = self._keys
        if not isinstance(outputs, Mapping) or key not in outputs:
            got = sorted(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise IntegrationError(f"expected training_step to return a dict with {key!r}, one per sample, got {got}")
        if self._feedback.needs_sources and source not in outputs:
            raise IntegrationError(
                f"expected training_step to return {source!r}, the source of each sample, got {sorted(outputs)}; "
                f"headway.selection.Tagged makes a dataset hand it out"
            )
        return outputs[key], outputs.get(source)


def _samplers(loaders: Any) -> list[Any]:
    """The samplers of one loader, or of several in lists and dicts."""
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    if isinstance(loaders, list | tuple):
        return [sampler for loader in loaders for sampler in _samplers(loader)]
    return [getattr(loaders, "sampler", None), getattr(getattr(loaders, "batch_sampler", None), "sampler", None)]


def _check_loss(outputs: Mapping[str, Any], losses: Tensor) -> None:
    """A loss beside the losses must be their mean: nothing else would be trained."""
    if "loss" not in outputs or losses.dim() != 1:
        return
    loss, mean = float(outputs["loss"].detach()), float(losses.detach().mean())
    if abs(loss - mean) > 1e-3 * max(abs(loss), abs(mean)):
        raise IntegrationError(
            f"expected no 'loss' beside the losses, or their mean {mean:.6g}, got {loss:.6g}; what is trained is the "
            f"mean, so put other terms into the losses, sample by sample"
        )
