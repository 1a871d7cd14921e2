"""Scores, a sampler and telemetry in a Lightning Trainer, by a callback."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from headway.errors import IntegrationError
from headway.integrations.training import Feedback, Metered, Steered
from headway.integrations.versions import require
from headway.selection import SourceStream
from headway.signals import Signal
from headway.telemetry import SourceMonitor

require("lightning")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.utilities.data import extract_batch_size  # noqa: E402

__all__ = ["SourceCallback"]


class SourceCallback(Metered, Callback):
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
        sampler: the sampler of the training DataLoader, or the `SourceStream` that is its dataset, whose shares follow
            the scores; or a `Mixture` that your own dataset draws by.
        monitor: follows the sources.
        drive: the name of the signal that the sampler follows; None for the first.
        losses: the key of the losses in what `training_step` returns.
        source: the key of the sources' numbers.
        log: log the share of every source, under "share/NAME".
        model: gives the module to meter; None for the whole LightningModule.
        meter: further arguments of the `Meter`, such as {"every": 4}.

    Raises:
        IntegrationError: the arguments make no sense.
        SignalError: what was given as signals are none.
    """

    def __init__(
        self,
        signals: Signal | Sequence[Signal] | None = None,
        *,
        sampler: Steered | None = None,
        monitor: SourceMonitor | None = None,
        drive: str | None = None,
        losses: str = "losses",
        source: str = "source",
        log: bool = True,
        model: Callable[[LightningModule], torch.nn.Module] | None = None,
        meter: Mapping[str, Any] | None = None,
    ) -> None:
        self._feedback = Feedback(signals, sampler, monitor, drive, meter)
        self._keys = (losses, source)
        self._log = log
        self._model = model
        self._checked = False
        self._loader: Any = None  # the one that draws from the sampler
        self._due = 0  # samples of the present batch that are not counted yet
        self._resumed = False  # a state was loaded, and no training has begun since

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
        if self._feedback.drawing is not None and trainer.world_size > 1:
            self._feedback.drawing.shard(trainer.global_rank, trainer.world_size)
        step = pl_module.training_step

        @functools.wraps(step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            return self._with_metered_loss(step(*args, **kwargs))

        pl_module.__dict__["training_step"] = training_step

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach the meter; the module is on its device by now, and has not run yet."""
        self._feedback.attach(pl_module if self._model is None else self._model(pl_module))
        resumed, self._resumed = self._resumed, False
        if self._feedback.drawing is not None and not resumed:
            # Lightning names the epoch when workers have drawn of it already.
            self._feedback.drawing.set_epoch(trainer.current_epoch)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell the meter what is around the module by now; make sure that the loader draws from the sampler."""
        if self.meter is not None and trainer.strategy.model is not None:
            self.meter.wrapped_in(trainer.strategy.model)
        self._feedback.expect(_samples(trainer))
        drawing = self._feedback.drawing
        if drawing is None:
            return
        loaders = _loaders(trainer.train_dataloader)
        found = next((own for own in loaders if _draws_from(own, drawing)), None)
        if found is None:
            raise IntegrationError(_refusal(drawing, loaders))
        self._loader = found if self._feedback.sampler is not None else None

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Note how many samples were drawn for the batch: a step may have fewer losses, more, or none."""
        self._due = 0 if self._loader is None else _batch_size(self._loader, batch)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the shares."""
        self._count()
        if self._log and self._feedback.steered is not None:
            pl_module.log_dict(self._feedback.shares, batch_size=1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell signals that look back over epochs."""
        if self.meter is not None:
            self.meter.end_epoch()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module as it was."""
        if stage == "fit":
            self._leave(pl_module)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the module as it was: Lightning does not tear down after an error."""
        self._leave(pl_module, failed=True)

    def _leave(self, pl_module: LightningModule, failed: bool = False) -> None:
        pl_module.__dict__.pop("training_step", None)
        self._feedback.close(failed)
        self._loader = None

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        return self._feedback.state_dict()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Put the monitor's state of all processes into the checkpoint: all come here, and each may ask for its own."""
        own = checkpoint.get("callbacks", {}).get(self.state_key)
        if own is not None and self._feedback.monitor is not None:
            own["monitor"] = self._feedback.monitor.state_dict(together=True)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._feedback.load_state_dict(state_dict)
        self._resumed = True

    # One batch

    def _with_metered_loss(self, outputs: Any) -> Any:
        if outputs is None:  # Lightning skips such a batch
            self._count()
            return None
        key, source = self._keys
        if not isinstance(outputs, Mapping) or key not in outputs:
            got = sorted(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise IntegrationError(f"expected training_step to return a dict with {key!r}, one per sample, got {got}")
        losses = outputs[key]
        if not self._checked and "loss" in outputs and losses.dim() == 1:
            _check_mean(float(outputs["loss"].detach()), float(losses.detach().mean()))
        self._checked = True  # once: it makes the host wait for the device
        return {**outputs, "loss": self._feedback.loss(losses, outputs.get(source), self._count)}

    def _count(self) -> None:
        """Count the batch, once: an optimizer may run the step several times."""
        due, self._due = self._due, 0
        self._feedback.consume(due)


def _loaders(loaders: Any) -> list[Any]:
    """One loader, or several in lists and dicts, as a list."""
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    if isinstance(loaders, list | tuple):
        return [own for loader in loaders for own in _loaders(loader)]
    return [loaders]


def _draws_from(loader: Any, drawing: Any) -> bool:
    batches = getattr(loader, "batch_sampler", None)
    parts = (loader, "sampler"), (batches, "sampler"), (loader, "dataset")
    return any(getattr(owner, name, None) is drawing for owner, name in parts)


def _refusal(drawing: Any, loaders: list[Any]) -> str:
    """Why nothing is drawn from the sampler or stream, and what to do."""
    kind = type(drawing).__name__
    if len(loaders) > 1:
        return (
            f"expected one training DataLoader that draws from the {kind}, got a CombinedLoader of {len(loaders)}, "
            f"which takes from each in a fixed order; put the sources into one loader: SourceStream({{...}}) for "
            f"iterables, SourceSampler with Tagged(ConcatDataset([...])) for datasets with an index"
        )
    if isinstance(drawing, SourceStream):
        return "expected the callback's stream as the dataset of the training DataLoader, got another"
    return (
        "expected the callback's sampler in the training DataLoader, got another; pass it to the loader as sampler=, "
        "and use Trainer(use_distributed_sampler=False): it shares its indices among processes itself"
    )


def _samples(trainer: Trainer) -> float:
    """The samples of the whole run over all processes; infinite where that is not known."""
    size = getattr(trainer.train_dataloader, "batch_size", None)
    if not isinstance(size, int) or trainer.estimated_stepping_batches < 0:
        return math.inf
    return trainer.estimated_stepping_batches * trainer.accumulate_grad_batches * size * trainer.world_size


def _batch_size(loader: Any, batch: Any) -> int:
    """The samples that a loader draws for a batch; an epoch's last may be smaller.

    A batch sampler of another kind need not say it: the tensors of the batch do then.
    """
    drawn_by = getattr(loader, "batch_sampler", None)
    if drawn_by is None:  # the dataset makes whole batches, one of each index
        return 1
    size = getattr(drawn_by, "batch_size", None)
    return int(extract_batch_size(batch) if size is None else size)


def _check_mean(loss: float, mean: float) -> None:
    """A loss beside the losses must be their mean: nothing else would be trained."""
    if abs(loss - mean) > 1e-3 * max(abs(loss), abs(mean)):
        raise IntegrationError(
            f"expected no 'loss' beside the losses, or their mean {mean:.6g}, got {loss:.6g}; what is trained is the "
            f"mean, so put other terms into the losses, sample by sample"
        )
