"""Scores, a sampler and telemetry in a Hugging Face Trainer, by a mixin."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import IntegrationError
from headway.grads.linear import outer_footprint, outer_product, several_positions, sum_positions
from headway.grads.persample import PerSample, promote
from headway.grads.registry import Inputs, register_rule
from headway.integrations.training import Feedback, KeepSources, Metered, ResumedSampler, Steered, packed_segments
from headway.integrations.versions import require
from headway.signals import Signal
from headway.telemetry import SourceMonitor

require("transformers", "accelerate")

from transformers import Trainer, TrainerCallback  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402
from transformers.pytorch_utils import Conv1D  # noqa: E402
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint  # noqa: E402

__all__ = ["SourceTrainer", "SourceTrainerMixin"]

_Trainer: Any = Trainer
FILE = "headway.pt"
"""What a checkpoint folder has of headway."""
IGNORED = -100
"""The label of positions that have no loss."""


@register_rule(Conv1D, footprint=outer_footprint, simultaneous=several_positions)
def conv1d(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """GPT-2's Linear, y = a W + b: its weight is transposed, and so is the gradient, sum_t a_t D_t^T."""
    a, b = promote(inputs[0], grad_output)
    return {"weight": outer_product(b, a), "bias": sum_positions(b)}


class SourceTrainerMixin(Metered, _Trainer):
    """Makes a Trainer score the samples of every training batch, and tell a sampler and a monitor.

        class MyTrainer(SourceTrainerMixin, Trainer): ...

        sampler = SourceSampler(Sources.joined({"web": web, "books": books}))
        data = Tagged(ConcatDataset([web, books]), sampler.sources)
        MyTrainer(model, args, train_dataset=data, sampler=sampler).train()

    Training is that of the Trainer alone: the loss, accumulation, clipping and mixed precision are its own. The states
    of meter, sampler and monitor are in its checkpoints.

    Args:
        args: those of the Trainer.
        signals: what to score with; None for GMC, and the gradient norm if there is a monitor.
        sampler: draws the training samples; its shares follow the scores. A `SourceStream` is the training dataset
            itself; with a `Mixture`, the training dataset is one of your own that draws by it.
        monitor: follows the sources.
        drive: the name of the signal that the sampler follows; None for the first.
        source_key: where a batch has the numbers of the sources.
        meter: further arguments of the `Meter`, such as {"every": 4}.
        kwargs: those of the Trainer.

    Attributes:
        scores: those of the latest batch, by signal.

    Raises:
        IntegrationError: the arguments make no sense, the Trainer was told to compute its loss in another way, the
            model's own loss of the first batch is another one, or nothing is drawn from the sampler.
    """

    data_collator: Any
    _signature_columns: Any

    labels_to_model = False
    """Whether the model is given the labels: only where it needs them, since it then computes its own loss as well."""

    shift_labels: bool | None = None
    """Whether position t predicts the label of t + 1; None for what the model's class says."""

    def __init__(
        self,
        *args: Any,
        signals: Signal | Sequence[Signal] | None = None,
        sampler: Steered | None = None,
        monitor: SourceMonitor | None = None,
        drive: str | None = None,
        source_key: str = "source",
        meter: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._feedback = Feedback(signals, sampler, monitor, drive, meter)
        self._source_key = source_key
        self._checked = False
        self._resume_from: Path | None = None
        self._drawn_from = False  # the Trainer has asked for the sampler
        if self._feedback.drawing is not None:
            self._feedback.drawing.shard(0, 1)  # accelerate shares the batches out among the processes
        own = self._feedback.sampler
        self._resumed_sampler = None if own is None else ResumedSampler(own)
        if self._feedback.stream is not None:
            kwargs.setdefault("train_dataset", self._feedback.stream)
        super().__init__(*args, **kwargs)
        self.data_collator = KeepSources(self.data_collator, source_key)
        if self.label_smoother is not None or self.compute_loss_func is not None:
            raise IntegrationError(
                "expected the Trainer's own loss, got label smoothing or compute_loss_func; "
                "override sample_losses() instead"
            )
        if self.args.n_gpu > 1:
            raise IntegrationError("expected one device per process, got DataParallel; start it with torchrun")
        self.add_callback(_Hooks(self))

    # What the Trainer asks

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train; a checkpoint brings the states of meter, sampler and monitor along."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True
        known = isinstance(resume_from_checkpoint, str | os.PathLike)
        self._resume_from = Path(resume_from_checkpoint) / FILE if known else None
        self._drawn_from = False
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        except BaseException:
            self._feedback.close(failed=True)
            raise

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """The sampler, or the Trainer's own."""
        if self._resumed_sampler is None:
            return super()._get_train_sampler(train_dataset)
        self._drawn_from = True
        self._resumed_sampler.remember(self._drawn_per_batch() * self._ranks())
        return self._resumed_sampler

    def _set_signature_columns_if_needed(self) -> None:
        """Keep the sources when columns that the model does not know are removed."""
        super()._set_signature_columns_if_needed()
        if self._source_key not in self._signature_columns:
            self._signature_columns = [*self._signature_columns, self._source_key]

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The Trainer's loss; in training, with a backward pass that scores the samples."""
        inputs = dict(inputs)
        sources = inputs.pop(self._source_key, None)
        if not model.training or not torch.is_grad_enabled() or self.meter is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if "labels" not in inputs:
            raise IntegrationError(
                f"expected 'labels' in a batch, got {sorted(inputs)}; the dataset or the data collator has to make "
                f"them, as DataCollatorForLanguageModeling does"
            )
        labels = inputs["labels"]
        own = None if self._checked else self._own_loss(inputs)
        if not self.labels_to_model:
            del inputs["labels"]
        packed = packed_segments(inputs) if self._has_own_losses() else None
        with packed or nullcontext():
            outputs = model(**inputs)
        if packed is None:
            sums, items = self.sample_losses(outputs, labels)
        else:
            positions, counted = (
                F.pad(one, (labels.shape[1] - one.shape[1], 0)) for one in self._by_position(outputs, labels)
            )
            sums, items = packed.sum(positions), packed.sum(counted.long())
        total = items.sum().clamp(min=1)
        losses = sums * (len(sums) / total)  # their mean is the mean over all positions of the batch
        aux, factor = self._balance(outputs), self._loss_factor(total, num_items_in_batch)
        if own is not None:
            self._check_loss(own, float(losses.detach().mean() + (0 if aux is None else aux.detach())))
        aux = None if aux is None else aux / factor  # the Trainer adds it to every batch as it is
        drawn = self._drawn_per_batch()
        loss = self._feedback.loss(losses, sources, lambda: self._feedback.consume(drawn), aux) * factor
        return (loss, outputs) if return_outputs else loss

    def _balance(self, outputs: Any) -> Tensor | None:
        """What a mixture of experts adds to its loss to balance their load (`output_router_logits`), or None."""
        aux = outputs.get("aux_loss") if isinstance(outputs, Mapping) else None
        weight = getattr(self._inner_model(), "router_aux_loss_coef", 0)
        return aux * weight if isinstance(aux, Tensor) and aux.requires_grad and weight else None

    def _loss_factor(self, items: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor | float:
        """From the mean over this batch's positions to that over all that are accumulated, as the Trainer has it."""
        if num_items_in_batch is None or not self.model_accepts_loss_kwargs:
            return 1.0
        ranks = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
        return items * ranks / num_items_in_batch

    def _own_loss(self, inputs: dict[str, Any]) -> Tensor | None:
        """The loss that the model computes itself, with the dropout that comes next; None where it has none to compare.

        A loss that was chosen by overriding `sample_losses` or by setting `shift_labels` is compared with nothing.
        """
        chosen = self.shift_labels is not None or not self._has_own_losses()
        taken = inspect.signature(self._inner_model().forward).parameters
        if chosen or not ("labels" in taken or any(one.kind is one.VAR_KEYWORD for one in taken.values())):
            self._checked = True
            return None
        device = inputs["labels"].device
        with torch.no_grad(), torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
            outputs = self.model(**inputs)
        own: Any = outputs.get("loss") if isinstance(outputs, Mapping) else outputs[0]
        self._checked = own is None or own.dim() > 0
        return None if self._checked or not own.isfinite() else own  # no position counts: wait for the next batch

    def _check_loss(self, own: Tensor, mean: float) -> None:
        """On the first batch, the mean of the samples' losses must be the model's own: nothing else is trained."""
        self._checked = True
        tolerance = max(1e-4, 2 * torch.finfo(own.dtype).eps)
        if abs(float(own) - mean) > tolerance * abs(float(own)):
            raise IntegrationError(
                f"expected losses with the mean {float(own):.6g}, which is the loss of {type(self.model).__name__}, "
                f"got {mean:.6g}; set shift_labels = {not self._shifts()} in the trainer's class if position t "
                f"{'predicts its own label' if self._shifts() else 'predicts the label of t + 1'}, "
                f"or override sample_losses()"
            )

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log the share of every source too, under "share/NAME"."""
        super().log({**logs, **self._feedback.shares}, *args, **kwargs)

    # What a subclass may change

    def sample_losses(self, outputs: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of every sample, added up over its positions, and the number of them.

        Cross-entropy of the logits, as the models of the library compute it. Override it for another loss.

        Args:
            outputs: what the model returned.
            labels: [B], or [B, T] with -100 at positions without a loss.

        Returns:
            Sums [B] and numbers of positions [B].
        """
        losses, counted = self._by_position(outputs, labels)
        return losses.sum(1), counted.sum(1)

    def _has_own_losses(self) -> bool:
        """Whether no subclass has put others in place of `sample_losses`."""
        return type(self).sample_losses is SourceTrainerMixin.sample_losses

    def _by_position(self, outputs: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The losses [B, T] of all positions that predict a label, and whether each counts."""
        logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
        if labels.dim() == 1:
            labels, logits = labels.unsqueeze(1), logits.unsqueeze(1)
        elif self._shifts():
            labels, logits = labels[:, 1:], logits[:, :-1]
        if labels.is_floating_point() or logits.shape[:2] != labels.shape:
            raise IntegrationError(
                f"expected class numbers as labels for logits {list(logits.shape)}, got {labels.dtype} "
                f"{list(labels.shape)}; override sample_losses() for this model"
            )
        losses = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none")
        return losses.view(labels.shape), labels != IGNORED

    def _shifts(self) -> bool:
        if self.shift_labels is not None:
            return self.shift_labels
        known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
        return any(one.__name__ in known for one in type(self._inner_model()).__mro__)

    def _inner_model(self) -> Any:
        """The model within torch.compile's and PEFT's."""
        model: Any = getattr(self.model, "_orig_mod", self.model)
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    # State

    def _begin(self) -> None:
        """Attach the meter, and load the states of a checkpoint.

        Not before: the Trainer may begin more than once, with smaller and smaller batches.
        """
        if self._resumed_sampler is not None and not self._drawn_from:
            raise IntegrationError(
                f"expected a training loader that draws from the sampler, got one of "
                f"{type(self.train_dataset).__name__} that does not; pass a dataset with an index, or iterable "
                f"sources as sampler=SourceStream({{...}})"
            )
        stream = self._feedback.stream
        if stream is not None and self.train_dataset is not stream:
            got = type(self.train_dataset).__name__
            raise IntegrationError(f"expected the stream as the training dataset, got {got}; leave train_dataset= out")
        self._feedback.expect(self.state.max_steps * self._drawn_per_step())
        self._feedback.attach(self.model).wrapped_in(self.model_wrapped)
        if self._resume_from is not None:
            self._load(self._resume_from)

    def _load(self, path: Path) -> None:
        if not path.exists():
            raise IntegrationError(
                f"expected {path}, got a checkpoint without it: it was not saved by a trainer with this mixin"
            )
        if self.args.ignore_data_skip and self._feedback.sampler is not None:
            raise IntegrationError("expected ignore_data_skip=False, got True; the sampler goes on within the epoch")
        state = torch.load(path, map_location="cpu", weights_only=True)
        saved, own = state.get("per_step"), self._drawn_per_step()
        if self._resumed_sampler is not None and saved not in (None, own):
            raise IntegrationError(
                f"expected {saved} samples in a step of the optimizer, as when {path.parent} was saved, got {own}; the "
                f"Trainer would skip other samples than it was trained on: set per_device_train_batch_size and "
                f"gradient_accumulation_steps so that they give {saved} over all processes"
            )
        self._feedback.load_state_dict(state)
        if self._resumed_sampler is not None:
            self._resumed_sampler.replay(state.get("first", []))

    def _drawn_per_batch(self) -> int:
        """The samples that are drawn for a batch of this process; an epoch's last may be smaller."""
        size = int(self._train_batch_size)
        return size // self._ranks() if self.accelerator.split_batches else size

    def _drawn_per_step(self) -> int:
        return self._drawn_per_batch() * self._ranks() * int(self.args.gradient_accumulation_steps)

    def _ranks(self) -> int:
        return int(self.accelerator.num_processes)


class SourceTrainer(SourceTrainerMixin, Trainer):
    """A Trainer that scores its samples; see `SourceTrainerMixin`."""


class _Hooks(TrainerCallback):
    """What the mixin does at the Trainer's events."""

    def __init__(self, owner: SourceTrainerMixin) -> None:
        self._owner = owner

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attach the meter and load its state: the model is where it will be, and has not run yet."""
        self._owner._begin()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell signals that look back over epochs."""
        if self._owner.meter is not None:
            self._owner.meter.end_epoch()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the states into the checkpoint's folder; all processes come here."""
        owner = self._owner
        content = owner._feedback.state_dict(owner._ranks(), together=True)
        if owner._resumed_sampler is not None:
            content |= {"first": owner._resumed_sampler.first, "per_step": owner._drawn_per_step()}
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"{FILE}.{os.getpid()}"
        torch.save(content, temporary)
        temporary.replace(folder / FILE)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model as it was."""
        self._owner._feedback.close()
