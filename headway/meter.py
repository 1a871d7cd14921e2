"""The meter: a model, some signals, and one backward pass that gives gradients and scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, cast, overload

import torch
from torch import Tensor, nn

from headway.errors import LossError, SignalError
from headway.grads import Engine, Layout, Reduction
from headway.grads.accounting import check_aux, check_losses, check_scored, refusing_earlier_graphs
from headway.grads.accumulation import Accumulation, LossScaler, scale_of
from headway.grads.check_schedule import Check
from headway.grads.checks import Checker
from headway.grads.every import Every, interval_for
from headway.grads.kernels import Choice, load
from headway.grads.persample import widened
from headway.grads.plans import by_parameter, handed_out, merged, own_gradients
from headway.grads.rounding import least_precision
from headway.grads.sharded import find_sharding
from headway.grads.verification import Verification, compare, one_at_a_time
from headway.grads.wrappers import Structure, Wrapper, accelerator_steps, trainable_parameters, unwrap
from headway.moments import WHOLE, Moments
from headway.signals import Batch, Scope, Signal
from headway.signals.base import BaseSignal, load_state, moments_by_decay, save_state, select, signals_by_name

if TYPE_CHECKING:
    import typing_extensions
    from typing_extensions import Unpack

    Scores = typing_extensions.TypeVar("Scores", default=Any)
    _Many = dict[str, Tensor]
    _Signals = Sequence[Signal]
else:
    Scores = TypeVar("Scores")
"""What a batch gives: a tensor for one signal, a dict for several; also None, where `every` leaves batches out."""


class _Rest(TypedDict, total=False):
    """What a meter can be told, besides `every`; see `Meter`."""

    reduction: Literal["mean", "sum"]
    accumulate: int | None
    layout: Layout | Mapping[str, Layout] | None
    simultaneous: bool
    check: Check
    verify: bool
    kernels: Choice | None


class Meter(Generic[Scores]):
    """Scores every sample of a training batch during the backward pass that training does anyway.

        meter = headway.Meter(model, headway.GMC(beta=0.999))
        for x, y in loader:
            losses = F.cross_entropy(model(x), y, reduction="none")
            scores = meter.backward(losses)
            optimizer.step()
            optimizer.zero_grad()

    Args:
        model: the model, also inside DistributedDataParallel or torch.compile, or sharded by fully_shard. Make the
            meter after that, before the first forward pass that it shall score, and before the model is compiled.
        signals: one signal, or several that share the pass.
        reduction: "mean" makes `.grad` the gradient of the mean loss, "sum" that of the sum. Scores and moments
            are of a sample's own gradient and of the mean gradient either way.
        every: score each k-th batch only; the others cost a plain backward pass and the update of the moments. "auto"
            scores as rarely as the drift of the scores allows, adding at most 10% to the time; see `AutoEvery`.
        accumulate: micro-batches per optimizer step. Each divides its gradient by this number, and the moments are
            updated with the last (under DistributedDataParallel, with the first from there on that synchronises). If
            the gradients are zeroed before, as after the rest of an epoch, the moments leave that step out. None is the
            number of accelerate's Accelerator, if the process has one, and 1 otherwise.
        layout: where the samples are in tensors that do not show it, see `headway.grads.layout`.
        simultaneous: sum the weight gradients of layers with several positions from the per-sample gradients.
        check: which batches are held against autograd, by one more backward pass with random weights over the samples:
            "auto", "always", every k-th, "first" or "never"; see `headway.grads.check_schedule.Schedule`.
        verify: compare every scored batch with one-sample-at-a-time autograd. Slow; see `verification`.
        kernels: "triton" reduces layers with several positions by a kernel, on CUDA devices; see docs/benchmarks.md.

    Raises:
        ModelError: the model has no trainable parameters, or is not where the kernels run.
        SignalError: no signals, two of one name, or one that picks no parameters.
    """

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Meter[Tensor], model: nn.Module, signals: Signal, *, every: Literal[1] = 1, **rest: Unpack[_Rest]
        ) -> None: ...
        @overload
        def __init__(
            self: Meter[Tensor | None], model: nn.Module, signals: Signal, *, every: Every, **rest: Unpack[_Rest]
        ) -> None: ...
        @overload
        def __init__(
            self: Meter[_Many], model: nn.Module, signals: _Signals, *, every: Literal[1] = 1, **rest: Unpack[_Rest]
        ) -> None: ...
        @overload
        def __init__(
            self: Meter[_Many | None], model: nn.Module, signals: _Signals, *, every: Every, **rest: Unpack[_Rest]
        ) -> None: ...

    def __init__(
        self,
        model: nn.Module,
        signals: Signal | Sequence[Signal],
        *,
        reduction: Literal["mean", "sum"] = "mean",
        every: Every = 1,
        accumulate: int | None = None,
        layout: Layout | Mapping[str, Layout] | None = None,
        simultaneous: bool = True,
        check: Check = "auto",
        verify: bool = False,
        kernels: Choice | None = None,
    ) -> None:
        if reduction not in ("mean", "sum"):
            raise LossError(f"expected reduction 'mean' or 'sum', got {reduction!r}")
        accumulate = accelerator_steps() if accumulate is None else accumulate
        if accumulate < 1:
            raise LossError(f"expected accumulate to be at least 1, got {accumulate}")
        self.model = unwrap(model)
        self._sharding = find_sharding(self.model, verify)
        self._together = nullcontext if self._sharding is None else self._sharding.ranks.together
        self._wrapper = Wrapper(model, self._sharding)
        self._trainable = trainable_parameters(self.model, self._sharding)
        self._structure = Structure(self.model, self._sharding)
        self._single = isinstance(signals, Signal)
        self._signals = signals_by_name(signals)
        self._moments = moments_by_decay(self._signals.values(), self._trainable, self._sharding or WHOLE)
        with self._together():
            self._scopes = {name: self._make_scope(signal) for name, signal in self._signals.items()}
            plans = self._plans(Batch(torch.zeros(1, device=next(iter(self._trainable.values())).device))).values()
        self._interval = interval_for(every)
        self._verify = verify
        self._batches = 0
        self._since_step = Accumulation(self._trainable, reduction, accumulate, self._sharding)
        self.verification: Verification | None = None
        names = {name for plan in plans for by_parameter in plan.values() for name in by_parameter}
        own_kernels = load(kernels, self._trainable)
        self._engine = Engine(self.model, names, layout, simultaneous and not verify, own_kernels, self._sharding)
        self._checker = Checker(self._engine, check)
        self._engine.attach()

    # Training

    def backward(
        self,
        losses: Tensor,
        *,
        groups: Tensor | None = None,
        aux: Tensor | None = None,
        scaler: LossScaler | None = None,
        retain_graph: bool = False,
    ) -> Scores:
        """Run the backward pass of a batch and score its samples.

        Args:
            losses: one loss per sample [B], with the graph that leads to the model.
            groups: the group (arm, source) of each sample [B], for signals that ask for it.
            aux: a loss [] of the batch as a whole, such as one that balances the load of experts. It trains the model
                as if it had been added to the mean of the losses, and is part of no sample's score.
            scaler: a GradScaler; `.grad` then carries its scale, as after `scaler.scale(loss).backward()`.
            retain_graph: as in `Tensor.backward`.

        Returns:
            One score per sample [B]; a dict by signal for several signals; None for a batch that `every` leaves out.

        Raises:
            LossError: losses of another shape, without samples, or without a path to the model.
            ModelError: the model is not the one that the meter was attached to.
            UnscoredGradientError: a parameter was trained in a way that the meter did not see.
            VerificationError: the batch was checked, and its per-sample gradients are not those of autograd.
        """
        batch = self._admit(losses, groups, aux)
        scale = scale_of(scaler, losses)
        weights = self._since_step.weights(losses, scale)
        scores, kept = None, retain_graph or aux is not None
        with self._since_step.micro_batch():
            if self._engine.armed:
                scores = self._score(losses, batch, weights, backward=True, retain_graph=kept)
            else:
                self._run(losses, weights, backward=True, retain_graph=kept)
            if aux is not None:  # adds the gradient of a loss that belongs to no sample
                share = (aux if scale is None else aux * scale) / self._since_step.steps
                with self._engine.deaf():
                    share.backward(retain_graph=retain_graph)
            self._observe(batch)
        self._advance(batch, scale, scores)
        return self._deliver(scores)

    def score(self, losses: Tensor, *, groups: Tensor | None = None, retain_graph: bool = False) -> Scores:
        """Score a batch as `backward` would, without touching gradients, moments or the count of batches.

        Args:
            losses: one loss per sample [B].
            groups: the group of each sample [B].
            retain_graph: keep the graph, for a `backward` of the same losses.

        Returns:
            As `backward`.
        """
        batch = self._admit(losses, groups)
        if not self._engine.armed:
            raise LossError(
                f"expected a batch whose forward pass was observed, got one that every={self.every} leaves out; "
                f"use a meter with every=1 for score()"
            )
        weights = self._since_step.weights(losses)
        return self._deliver(self._score(losses, batch, weights, backward=False, retain_graph=retain_graph))

    @contextmanager
    def unscored(self) -> Iterator[None]:
        """Leave out the batch whose two passes are inside, as `every` does: `backward` returns None."""
        self._engine.armed = False
        try:
            yield
        finally:
            self._engine.armed = self._interval.is_due(self._batches)

    def end_epoch(self) -> None:
        """Tell signals that look back over epochs that one has ended."""
        for name, signal in self._signals.items():
            signal.end_epoch(self._scopes[name])

    # State

    def wrapped_in(self, wrapper: nn.Module) -> None:
        """Take note of a DistributedDataParallel that was put around the model after the meter was made.

        The meter needs to know of it where gradients are accumulated under `no_sync()`, where losses are added up
        rather than averaged, and where a scaler's scale differs between ranks.
        """
        self._wrapper = Wrapper(wrapper, self._sharding)

    def detach(self) -> None:
        """Remove every hook; the model is as it was before."""
        self._engine.detach()

    def __enter__(self) -> Meter[Scores]:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    @property
    def signals(self) -> dict[str, Signal]:
        """The signals by name."""
        return dict(self._signals)

    @property
    def every(self) -> int:
        """The present interval k: each k-th batch is scored."""
        return self._interval.length

    def moments(self, signal: str | None = None) -> Moments:
        """The moments of a signal; its name may be left out where there is only one.

        Raises:
            SignalError: no such signal, or one without moments.
        """
        with_moments = [name for name, scope in self._scopes.items() if scope.moments is not None]
        name = signal if signal is not None else with_moments[0] if len(with_moments) == 1 else None
        if name is None or name not in with_moments:
            raise SignalError(f"expected a signal with moments out of {with_moments}, got {signal!r}")
        return self._scopes[name].require_moments()

    def state_dict(self) -> dict[str, Any]:
        """Everything that later scores depend on: moments, the signals' memory and counters.

        Raises:
            StateError: micro-batches are being accumulated; save after the last of them.
        """
        self._since_step.check_between_steps()
        return {**save_state(self._batches, self._moments, self._scopes), **self._interval.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Continue from a state; nothing changes if it does not fit.

        Args:
            state: what `state_dict` gave.
            strict: expect moments of the same parameters. Otherwise parameters that only one side has are left out,
                as after some were frozen, unfrozen or added: their moments are as if they had been zero so far.

        Raises:
            StateError: the state belongs to other signals, another model or a newer version.
        """
        with self._together():
            load_state(state, self._moments, self._scopes, strict)
        self._batches = state["batches"]
        self._since_step.clear()
        self._engine.armed = self._interval.load_state_dict(self._batches, state)

    def __repr__(self) -> str:
        return f"Meter({type(self.model).__name__}, {', '.join(map(repr, self._signals.values()))})"

    # Set-up

    def _make_scope(self, signal: Signal) -> Scope:
        moments = None if signal.decay is None else self._moments[signal.decay]
        scope = Scope(select(self._trainable, signal.where), moments, parts=self._sharding or WHOLE)
        signal.init(scope)
        return scope

    # One batch

    def _admit(self, losses: Tensor, groups: Tensor | None, aux: Tensor | None = None) -> Batch:
        """Check a batch before anything is touched."""
        with self._engine.uses.forgotten_on_error(), self._together():
            check_losses(losses, groups)
            for scope in self._scopes.values():
                scope.pending.clear()
            self._engine.check_attached()
            self._structure.check_unchanged(self.model, self._trainable)
            batch = Batch(losses.detach(), groups)
            for signal in self._signals.values():
                signal.validate(batch)
            check_aux(aux, self._wrapper.is_parallel and self._sharding is None)
        return batch

    def _plans(self, batch: Batch) -> dict[str, Mapping[str, Mapping[str, Reduction]]]:
        return {name: signal.reductions(self._scopes[name], batch) for name, signal in self._signals.items()}

    def _score(
        self, losses: Tensor, batch: Batch, weights: Tensor, backward: bool, retain_graph: bool
    ) -> dict[str, Tensor]:
        """Run the pass and make scores of what it reduced."""
        with self._engine.uses.forgotten_on_error():
            due = bool(self._engine.parameters) and self._checker.take(batch.samples)
            if self._sharding is not None:
                joined, due = self._sharding.ranks.agree(batch.samples, due, self._engine.uses.order(losses))
                batch = replace(batch, elsewhere=joined - batch.samples)
            with self._together():
                plans = self._plans(batch)
        plan = merged(plans)
        if not self._batches and (self._verify or not backward):
            self._wrapper.check_first_pass()
        scored = {name: self._trainable[name] for name in plan}
        if self._verify and plan:  # plain norms say something even while the moments are still zero
            plan = {name: [*reductions, Reduction("l1")] for name, reductions in plan.items()}
            oracle = one_at_a_time(self._engine, losses, scored, plan)
        check = self._checker.begin(losses, scored, weights, self._wrapper.is_parallel) if plan and due else None
        with self._engine.run(losses.shape[0], plan, check) as current:
            trained = self._run(losses, weights, backward, retain_graph or check is not None)
        with self._together():
            check_scored(self._engine, self._since_step, current, plan, trained, losses)
            if backward:
                self._since_step.note_freed(current.results, self._wrapper.is_parallel)
        self._checker.finish(current)
        rows = own_gradients(current, plan, self._since_step.inverse(weights)) if plan else None
        if self._verify and rows is not None:
            values, least = by_parameter(rows, plan), least_precision(losses, self._engine.dtypes())
            self.verification = compare(values, oracle, plan, least)
        with self._together(), torch.no_grad():
            shares = handed_out(rows, plan, plans).items()
            return {name: self._signals[name].scores(self._scopes[name], batch, own) for name, own in shares}

    def _run(self, losses: Tensor, weights: Tensor, backward: bool, retain_graph: bool) -> set[str]:
        """Run the backward pass; without `.grad`, tell which parameters have received a gradient."""
        if backward:
            with self._since_step.catching(), refusing_earlier_graphs(self._trainable):
                losses.backward(weights, retain_graph=retain_graph)
            return set()
        if self._sharding is not None:
            return set(self._sharding.gradients(losses, weights, retain_graph))
        grads = torch.autograd.grad(losses, list(self._trainable.values()), weights, retain_graph, allow_unused=True)
        return {name for name, grad in zip(self._trainable, grads, strict=True) if grad is not None}

    def _observe(self, batch: Batch) -> None:
        """Take the batch into the signals' memory."""
        nothing: Any = BaseSignal.observe
        observers = {name: s for name, s in self._signals.items() if type(s).observe is not nothing}
        with self._together() if observers else nullcontext():  # signals that remember nothing cost no all-reduce
            for name, signal in observers.items():
                signal.observe(self._scopes[name], batch)

    def _advance(self, batch: Batch, scale: Tensor | None, scores: Mapping[str, Tensor] | None) -> None:
        """Count the batch and, with the last micro-batch, take its gradients into the moments."""
        self._batches += 1
        self._engine.armed = self._interval.advance(self._batches, scores, batch.groups)
        self._since_step.add(batch.samples, scale)
        if not self._since_step.is_full or not self._wrapper.synchronises:
            self._since_step.hold()
            return
        if self._moments and not self._since_step.incomplete:
            gradients, divisor = self._since_step.gradients(self._wrapper), self._since_step.divisor(self._wrapper)
            for moments in self._moments.values():
                moments.update(gradients, divisor)
        self._since_step.clear()

    def _deliver(self, scores: dict[str, Tensor] | None) -> Scores:
        if scores is None:
            return cast(Scores, None)
        wide = {name: value.to(widened(value.dtype)) for name, value in scores.items()}
        return cast(Scores, next(iter(wide.values())) if self._single else wide)
