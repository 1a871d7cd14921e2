"""What adapters of training loops share: a metered loss, where its scores go, and samplers that resume."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, distributed
from torch.utils.data import Sampler

from headway.errors import IntegrationError, warn
from headway.grads.segments import Segments, segments
from headway.meter import Meter
from headway.selection import Mixture, SourceSampler, SourceStream
from headway.signals import GMC, NormAll, Signal
from headway.signals.base import signals_by_name
from headway.telemetry import SourceMonitor

Steered = SourceSampler | SourceStream | Mixture
"""What has shares that follow scores: draws indices, draws samples, or says the shares alone."""


class Feedback:
    """A meter, and who hears of its scores; the adapters say what the arguments are.

    Attributes:
        steered: the sampler, stream or mixture.
        sampler: the same, if it is a sampler; only then there is a place in its indices to go on from.
        stream: the same, if it is a stream.
        drawing: the same, if it is one of these two.

    Raises:
        IntegrationError: the arguments make no sense, or do not fit together.
        SignalError: what was given as signals are none.
    """

    def __init__(
        self,
        signals: Signal | Sequence[Signal] | None,
        sampler: Steered | None,
        monitor: SourceMonitor | None,
        drive: str | None,
        meter_options: Mapping[str, Any] | None,
    ) -> None:
        _check(signals, sampler, monitor)
        if signals is None:
            signals = [GMC(), NormAll()] if monitor is not None else [GMC()]
        by_name = signals_by_name(signals)
        sources = _mixture_of(sampler).names if sampler is not None else monitor.names if monitor is not None else ()
        self.signals, names = [_by_source(signal, len(sources)) for signal in by_name.values()], list(by_name)
        self._drive = names[0] if drive is None else drive
        if self._drive not in names:
            raise IntegrationError(f"expected drive to name one of the signals {names}, got {self._drive!r}")
        self.steered = sampler
        self.sampler = sampler if isinstance(sampler, SourceSampler) else None
        self.stream = sampler if isinstance(sampler, SourceStream) else None
        self.drawing = self.sampler or self.stream
        self.monitor = monitor
        if monitor is not None and monitor.has_sources and monitor.sampler is None:
            monitor.sampler = sampler
        self.options = dict(meter_options or {})
        for name, must in (("accumulate", 1), ("reduction", "mean")):
            if self.options.get(name, must) != must:
                raise IntegrationError(
                    f"expected a meter with {name}={must!r}, got {self.options[name]!r}; the framework scales the loss"
                )
        self.meter: Meter | None = None
        self.scores: dict[str, Tensor] | None = None
        self._consumed = 0  # samples of the sampler's stretch with this number
        self._stretch = 0
        self._attached = False
        self._state: Mapping[str, Any] | None = None

    @property
    def shares(self) -> dict[str, float]:
        """The share of every source, under "share/NAME"; none without a sampler."""
        return {} if self.steered is None else {f"share/{name}": own for name, own in self.steered.weights.items()}

    def expect(self, samples: float) -> None:
        """Warn of signals that a run of so many samples, over all processes, is too short for."""
        for signal in self.signals:
            least = getattr(signal, "least_samples", 0)
            if samples < least:
                warn(
                    f"{signal.name}: expected a run of at least {least} samples to fill its windows, got "
                    f"{samples:.0f}; the scores of most sources stay zero: use a shorter window="
                )

    def attach(self, model: torch.nn.Module) -> Meter:
        """Make the meter, and give it the state that was loaded for it."""
        self.detach()  # a framework that begins anew, as with a smaller batch, does not say so
        self.meter = Meter(model, self.signals, **{"accumulate": 1, **self.options})
        self._attached = True
        if self._state is not None:
            self.meter.load_state_dict(self._state)
        self._state = None
        return self.meter

    def detach(self) -> None:
        """Leave the model as it was."""
        if self.meter is not None:
            self.meter.detach()
        self._attached = False

    def close(self, failed: bool = False) -> None:
        """Training is over, by its end or by an error: detach the meter, and write the monitor's last rows.

        The processes of torch.distributed make these rows together, and after an error the others may not come.
        """
        self.detach()
        together = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
        if self.monitor is not None and not (failed and together):
            self.monitor.close()

    def consume(self, samples: int) -> None:
        """Count the samples that the sampler drew for a batch, also for one that is not trained on."""
        if self.sampler is None:
            return
        stretch, _ = self.sampler.stretch
        if self._stretch != stretch:
            self._stretch, self._consumed = stretch, 0
        self._consumed += samples

    def loss(
        self, losses: Tensor, sources: Tensor | None, then: Callable[[], None], aux: Tensor | None = None
    ) -> Tensor:
        """The mean loss [], whose backward pass scores the samples and tells the sampler and the monitor.

        Args:
            losses: one per sample [B].
            sources: the source of each sample [B], which is its group for the signals that ask for one.
            then: called at the end of the pass.
            aux: what is added to the mean and belongs to no sample, see `Meter.backward`.

        Raises:
            IntegrationError: the samples come without the sources that a sampler or monitor asks for.
        """
        assert self.meter is not None
        if sources is None and (self.steered is not None or (self.monitor is not None and self.monitor.has_sources)):
            raise IntegrationError(
                "expected the source of each sample beside the losses, got none; headway.selection.Tagged makes a "
                "dataset hand it out, and SourceStream does"
            )

        def report(scores: dict[str, Tensor] | None) -> None:
            self.scores = scores
            if self.steered is not None and sources is not None:
                self.steered.update(sources, None if scores is None else scores[self._drive])
            if self.monitor is not None:
                self.monitor.update(sources if self.monitor.has_sources else None, scores, losses.detach())
            then()

        groups = None if sources is None else torch.as_tensor(sources, device=losses.device)
        return metered_loss(self.meter, losses, report, groups, aux)

    def state_dict(self, share: int = 1, together: bool = False) -> dict[str, Any]:
        """The states of all; `share` processes consume what the sampler hands out in one.

        With `together`, the monitor's is that of all processes, and all of them have to ask for it.
        """
        state: dict[str, Any] = {"meter": None if self.meter is None else self.meter.state_dict()}
        if self.sampler is not None:
            state["sampler"] = self.sampler.state_dict(self._position(self.sampler, share))
        elif self.steered is not None:
            state["mixture"] = _mixture_of(self.steered).state_dict()
        if self.monitor is not None:
            state["monitor"] = self.monitor.state_dict(together)
        return state

    def _position(self, sampler: SourceSampler, share: int) -> int:
        """The samples of the sampler's epoch that training has used, in this replica."""
        stretch, start = sampler.stretch
        used = self._consumed * share if self._stretch == stretch else 0
        used += start // sampler.num_replicas
        drawn, end = (count // sampler.num_replicas for count in sampler.progress)
        if drawn in (0, end):  # an epoch's last batches may be filled up, and another process may do the drawing
            return min(used, drawn)
        return used

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; the meter's is kept until there is a meter."""
        if self.meter is None or not self._attached:
            self._state = state["meter"]
        elif state["meter"] is not None:
            self.meter.load_state_dict(state["meter"])
        mixture = None if self.steered is None else _mixture_of(self.steered)
        parts: dict[str, Any] = {"sampler": self.sampler, "mixture": mixture, "monitor": self.monitor}
        for name, part in parts.items():
            if part is not None and name in state:
                part.load_state_dict(state[name])


class Metered:
    """What users see of the feedback that an adapter has as `_feedback`."""

    _feedback: Feedback

    @property
    def meter(self) -> Meter | None:
        """The meter, once there is a model to meter."""
        return self._feedback.meter

    @property
    def scores(self) -> dict[str, Tensor] | None:
        """Those of the latest batch, by signal."""
        return self._feedback.scores


def _check(signals: Any, sampler: Any, monitor: Any) -> None:
    """Refuse what would fail only in training, or tell a monitor the wrong names."""
    kinds: tuple[tuple[str, Any, Any, str], ...] = (
        ("sampler", sampler, Steered, "a SourceSampler, a SourceStream or a Mixture"),
        ("monitor", monitor, SourceMonitor, "a SourceMonitor"),
    )
    for name, given, kind, expected in kinds:
        if isinstance(signals, kind):
            raise IntegrationError(f"expected signals, got a {type(signals).__name__}; pass it as {name}=")
        if given is not None and not isinstance(given, kind):
            raise IntegrationError(f"{name}: expected {expected}, got {type(given).__name__}")
    if sampler is not None and monitor is not None and monitor.has_sources:
        wanted, got = list(_mixture_of(sampler).names), list(monitor.names)
        if got != wanted:
            raise IntegrationError(f"expected a monitor of the sampler's sources {wanted}, in order, got one of {got}")


def _mixture_of(steered: Steered) -> Mixture:
    return steered if isinstance(steered, Mixture) else steered.mixture


def _by_source(signal: Any, sources: int) -> Any:
    """A signal with a group for each source, where it has groups and was not told how many."""
    if sources < 2 or not dataclasses.is_dataclass(signal) or isinstance(signal, type):
        return signal
    changes: dict[str, Any] = {}
    if getattr(signal, "groups", None) == 1:
        changes["groups"] = sources
    inner = getattr(signal, "of", None)
    if inner is not None and (within := _by_source(inner, sources)) is not inner:
        changes["of"] = within
    return dataclasses.replace(signal, **changes) if changes else signal


def metered_loss(
    meter: Meter,
    losses: Tensor,
    then: Callable[[Any], None] | None = None,
    groups: Tensor | None = None,
    aux: Tensor | None = None,
) -> Tensor:
    """The mean of per-sample losses, as a scalar whose backward pass is the meter's.

    For training loops that call `loss.backward()` themselves, with a meter of reduction "mean" and accumulate=1.
    Whatever they do to the loss first, such as dividing it by the number of accumulated batches or multiplying it by
    the scale of a GradScaler, reaches `.grad`; scores and moments are of the losses as they are given here. Every such
    backward pass updates the moments, so that with accumulation a "batch" of theirs is a micro-batch; under
    DistributedDataParallel only those do that synchronise the gradients, with all since the one before (see
    `Meter.wrapped_in`). At its end, `then` gets the scores, or None for a batch that `every` leaves out.
    """

    def run(grad: Tensor) -> None:
        scaler: Any = SimpleNamespace(scale=lambda outputs: outputs * grad.detach())
        with torch.enable_grad():
            scores = meter.backward(losses, groups=groups, aux=aux, scaler=scaler)
        if then is not None:
            then(scores)

    trigger = torch.zeros((), device=losses.device, requires_grad=True)
    mean = losses.detach().mean()
    metered: Tensor = _Metered.apply(trigger, mean if aux is None else mean + aux.detach(), run)
    return metered


class _Metered(torch.autograd.Function):
    """Hands on a value; backward, calls a function with the gradient at it."""

    @staticmethod
    def forward(ctx: Any, trigger: Tensor, value: Tensor, run: Callable[[Tensor], None]) -> Tensor:
        ctx.run = run
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        run, ctx.run = ctx.run, None  # the graph of the losses is used up
        run(grads[0])
        return None, None, None


def packed_segments(inputs: Mapping[str, Any]) -> Segments | None:
    """Which sample each position of a packed batch [1, N] belongs to; None for a batch of another kind.

    A language model's inputs are packed if DataCollatorWithFlattening gave them `seq_idx` or `position_ids`.
    """
    tokens, numbers, places = (inputs.get(key) for key in ("input_ids", "seq_idx", "position_ids"))
    if tokens is None or len(tokens) != 1 or (numbers is None and places is None):
        return None
    found = segments(position_ids=places) if numbers is None else segments(numbers)
    return found if found.samples > 1 else None


class ResumedSampler(Sampler[int]):
    """A sampler that can be asked again for what was drawn before a checkpoint, and is not asked to keep it.

    The Trainer goes on within an epoch by drawing what it has had, and dropping it. A `SourceSampler` goes on where it
    was, so these are placeholders; all but `first`, an epoch's first indices, with which accelerate fills its last
    batches up.
    """

    def __init__(self, sampler: SourceSampler) -> None:
        self._sampler = sampler
        self._to_replay = 0
        self._many = 0
        self.first: list[int] = []

    def remember(self, many: int) -> None:
        """Keep so many of an epoch's first indices."""
        self._many = many

    def replay(self, first: list[int]) -> None:
        """The epoch's indices up to the present will be asked for again; the first of them were these."""
        handed, end = self._sampler.progress
        self._to_replay = handed if handed < end else 0
        self.first = first[: self._to_replay]

    def __iter__(self) -> Iterator[int]:
        to_replay, self._to_replay = self._to_replay, 0
        self.first = self.first[:to_replay]
        placeholder = int(self._sampler.sources.members[0][0])
        yield from self.first[:]
        yield from itertools.repeat(placeholder, to_replay - len(self.first))
        indices = iter(self._sampler)
        for index in itertools.islice(indices, max(0, self._many - to_replay)):
            self.first.append(index)
            yield index
        yield from indices

    def __len__(self) -> int:
        return len(self._sampler)

    def set_epoch(self, epoch: int) -> None:
        """See `SourceSampler.set_epoch`; of an epoch before, nothing will be asked for again."""
        if epoch != self._sampler.epoch:
            self._to_replay = 0
        self._sampler.set_epoch(epoch)


class KeepSources:
    """A data collator whose batches keep the sources of the samples."""

    def __init__(self, collator: Any, key: str) -> None:
        self._collator, self._key = collator, key

    def __call__(self, features: Any) -> Any:
        """The batch, with the sources where the samples have them."""
        batch = self._collator(features)
        known = all(isinstance(one, Mapping) and self._key in one for one in features)
        if known and isinstance(batch, MutableMapping) and self._key not in batch:
            batch[self._key] = torch.tensor([int(one[self._key]) for one in features])
        return batch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_collator":
            raise AttributeError(name)
        return getattr(self._collator, name)
