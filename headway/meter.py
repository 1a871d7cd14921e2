"""The meter: a model, some signals, and one backward pass that gives gradients and scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypedDict, TypeVar, cast, overload

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from headway.errors import LossError, ModelError, SignalError, StateError
from headway.grads import Engine, Layout, Reduction
from headway.grads.accounting import check_complete, check_reached
from headway.grads.accumulation import Accumulation
from headway.grads.checks import Check, Checker
from headway.grads.passes import Pass
from headway.grads.plans import handed_out, merged, own_gradients
from headway.grads.rounding import least_precision
from headway.grads.verification import Verification, compare, one_at_a_time
from headway.grads.wrappers import Structure, Wrapper, unwrap
from headway.moments import Decay, Moments
from headway.signals import Batch, Scope, Signal
from headway.signals.base import select, signals_by_name

if TYPE_CHECKING:
    import typing_extensions
    from typing_extensions import Unpack

    Scores = typing_extensions.TypeVar("Scores", default=Any)
else:
    Scores = TypeVar("Scores")
"""What a batch gives: a tensor for one signal, a dict for several; also None, where `every` leaves batches out."""


class _Options(TypedDict, total=False):
    """What a meter can be told, besides `every`; see `Meter`."""

    reduction: Literal["mean", "sum"]
    accumulate: int
    layout: Layout | Mapping[str, Layout] | None
    simultaneous: bool
    check: Check
    verify: bool


class LossScaler(Protocol):
    """What the meter needs of a torch.amp.GradScaler."""

    @overload
    def scale(self, outputs: Tensor) -> Tensor: ...
    @overload
    def scale(self, outputs: Iterable[Tensor]) -> Iterable[Tensor]: ...


class Meter(Generic[Scores]):
    """Scores every sample of a training batch during the backward pass that training does anyway.

        meter = headway.Meter(model, headway.GMC(beta=0.999))
        for x, y in loader:
            losses = F.cross_entropy(model(x), y, reduction="none")
            scores = meter.backward(losses)
            optimizer.step()
            optimizer.zero_grad()

    Args:
        model: the model, also inside DistributedDataParallel or torch.compile. Make the meter before the first
            forward pass that it shall score, and before the model is compiled.
        signals: one signal, or several that share the pass.
        reduction: "mean" makes `.grad` the gradient of the mean loss, "sum" that of the sum. Scores and moments
            are of a sample's own gradient and of the mean gradient either way.
        every: score each k-th batch only; the others cost a plain backward pass and the update of the moments.
        accumulate: micro-batches per optimizer step. Each divides its gradient by this number, and the moments are
            updated with the last (under DistributedDataParallel, with the first from there on that synchronises). If
            the gradients are zeroed before, as after the rest of an epoch, the moments leave that step out.
        layout: where the samples are in tensors that do not show it, see `headway.grads.layout`.
        simultaneous: sum the weight gradients of layers with several positions from the per-sample gradients.
        check: when to hold the per-sample gradients of a batch against autograd, by one more backward pass with random
            weights over its samples. "auto" does it for the first batch of every situation (shapes, modes, uses of
            parameters) and for batches 1, 2, 4, ..., 1024, 2048, 3072, ...; "always" for every batch, a number k for
            every k-th and the first of every situation, "first" for the latter alone, "never" for none.
        verify: compare every scored batch with one-sample-at-a-time autograd. Slow; see `verification`.

    Raises:
        ModelError: the model has no trainable parameters.
        SignalError: no signals, two of one name, or one that picks no parameters.
    """

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Meter[Tensor],
            model: nn.Module,
            signals: Signal,
            *,
            every: Literal[1] = 1,
            **options: Unpack[_Options],
        ) -> None: ...
        @overload
        def __init__(
            self: Meter[Tensor | None], model: nn.Module, signals: Signal, *, every: int, **options: Unpack[_Options]
        ) -> None: ...
        @overload
        def __init__(
            self: Meter[dict[str, Tensor]],
            model: nn.Module,
            signals: Sequence[Signal],
            *,
            every: Literal[1] = 1,
            **options: Unpack[_Options],
        ) -> None: ...
        @overload
        def __init__(
            self: Meter[dict[str, Tensor] | None],
            model: nn.Module,
            signals: Sequence[Signal],
            *,
            every: int,
            **options: Unpack[_Options],
        ) -> None: ...

    def __init__(
        self,
        model: nn.Module,
        signals: Signal | Sequence[Signal],
        *,
        reduction: Literal["mean", "sum"] = "mean",
        every: int = 1,
        accumulate: int = 1,
        layout: Layout | Mapping[str, Layout] | None = None,
        simultaneous: bool = True,
        check: Check = "auto",
        verify: bool = False,
    ) -> None:
        if reduction not in ("mean", "sum"):
            raise LossError(f"expected reduction 'mean' or 'sum', got {reduction!r}")
        for label, number in (("every", every), ("accumulate", accumulate)):
            if number < 1:
                raise LossError(f"expected {label} to be at least 1, got {number}")
        self.model = unwrap(model)
        self._wrapper = Wrapper(model)
        self._trainable = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        if not self._trainable:
            raise ModelError(
                f"expected a model with trainable parameters, got {type(self.model).__name__} without any; "
                f"set requires_grad on what is to be trained"
            )
        for name, parameter in self._trainable.items():
            if isinstance(parameter, UninitializedParameter):
                raise ModelError(f"{name}: expected an initialised parameter, got a lazy one; run the model once first")
            if parameter.is_complex():
                raise ModelError(
                    f"{name}: expected a real parameter, got {parameter.dtype}; keep its real and imaginary part in a "
                    f"real parameter and join them in the forward pass with torch.view_as_complex"
                )
        self._structure = Structure(self.model)
        self._single = isinstance(signals, Signal)
        self._signals = signals_by_name(signals)
        self._moments = self._make_moments()
        self._scopes = {name: self._make_scope(signal) for name, signal in self._signals.items()}
        self._reduction = reduction
        self._every = every
        self._accumulate = accumulate
        self._verify = verify
        self._batches = 0
        self._since_step = Accumulation(self._trainable)
        self.verification: Verification | None = None
        names = {name for plan in self._plans(_probe(self._trainable)).values() for name in _names(plan)}
        self._engine = Engine(self.model, names, layout, simultaneous and not verify)
        self._checker = Checker(self._engine, check)
        self._engine.attach()

    # Training

    def backward(
        self,
        losses: Tensor,
        *,
        groups: Tensor | None = None,
        scaler: LossScaler | None = None,
        retain_graph: bool = False,
    ) -> Scores:
        """Run the backward pass of a batch and score its samples.

        Args:
            losses: one loss per sample [B], with the graph that leads to the model.
            groups: the group (arm, source) of each sample [B], for signals that ask for it.
            scaler: a GradScaler; `.grad` then carries its scale, as after `scaler.scale(loss).backward()`.
            retain_graph: as in `Tensor.backward`.

        Returns:
            One score per sample [B], detached; a dict by signal name if the meter was given several; None for
            a batch that `every` leaves out.

        Raises:
            LossError: losses of another shape, without samples, or without a path to the model.
            ModelError: the model is not the one that the meter was attached to.
            UnscoredGradientError: a parameter was trained in a way that the meter did not see.
            VerificationError: the batch was checked, and its per-sample gradients are not those of autograd.
        """
        batch = self._admit(losses, groups)
        scale = _scale_of(scaler, losses)
        weights = self._weights(losses, scale)
        before = self._since_step.begin()
        scores = None
        try:
            if self._engine.armed:
                scores = self._score(losses, batch, weights, backward=True, retain_graph=retain_graph)
            else:
                self._run(losses, weights, backward=True, retain_graph=retain_graph)
        except Exception:
            self._put_back(before)
            self._since_step.hold()
            raise
        self._advance(batch, scale)
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
                f"expected a batch whose forward pass was observed, got one that every={self._every} leaves out; "
                f"use a meter with every=1 for score()"
            )
        weights = self._weights(losses, None)
        return self._deliver(self._score(losses, batch, weights, backward=False, retain_graph=retain_graph))

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
        self._wrapper = Wrapper(wrapper)

    def detach(self) -> None:
        """Remove every hook; the model is as it was before."""
        self._engine.detach()

    def __enter__(self) -> Meter:
        """The meter itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Detach."""
        self.detach()

    @property
    def signals(self) -> dict[str, Signal]:
        """The signals by name."""
        return dict(self._signals)

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
        self._since_step.forget_if_zeroed()
        if self._since_step.count:
            raise StateError(
                f"expected a meter between optimizer steps, got one after micro-batch {self._since_step.count} of "
                f"{self._accumulate}; save it after the last, or after zero_grad()"
            )
        return {
            "schema": 1,
            "batches": self._batches,
            "moments": [moments.state_dict() for moments in self._moments.values()],
            "memory": {
                name: {key: value.clone() for key, value in scope.memory.items()}
                for name, scope in self._scopes.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Continue from a state; nothing changes if it does not fit.

        Args:
            state: what `state_dict` gave.
            strict: expect moments of the same parameters. Otherwise parameters that only one side has are left out,
                as after some were frozen, unfrozen or added: their moments are as if they had been zero so far.

        Raises:
            StateError: the state belongs to other signals, another model or a newer version.
        """
        pairs = self._check_state(state, strict)
        for moments, saved in pairs:
            moments.load_state_dict(saved, strict)
        for name, scope in self._scopes.items():
            for key, value in scope.memory.items():
                value.copy_(state["memory"][name][key])
            scope.version = ()
        self._batches = state["batches"]
        self._since_step.clear()
        self._engine.armed = self._batches % self._every == 0

    def _check_state(self, state: Mapping[str, Any], strict: bool) -> list[tuple[Moments, Mapping[str, Any]]]:
        """Make sure that a state fits, and find the saved moments for each of the meter's own."""
        if state.get("schema") != 1:
            raise StateError(f"expected a meter's state of schema 1, got {state.get('schema')!r}")
        missing = [key for key in ("batches", "moments", "memory") if key not in state]
        if missing:
            raise StateError(f"expected a meter's state with {missing[0]!r}, got one without it")
        if not isinstance(state["batches"], int) or state["batches"] < 0:
            raise StateError(f"expected a number of batches from 0, got {state['batches']!r}")
        if set(state["memory"]) != set(self._scopes) or len(state["moments"]) != len(self._moments):
            raise StateError(f"expected a state of the signals {sorted(self._scopes)}, got {sorted(state['memory'])}")
        for name, scope in self._scopes.items():
            for key, value in scope.memory.items():
                if key not in state["memory"][name] or state["memory"][name][key].shape != value.shape:
                    raise StateError(f"{name}: expected memory {key!r} of shape {list(value.shape)}")
        saved_by_decay = {tuple(saved.get("decay", ())): saved for saved in state["moments"]}
        pairs = []
        for decay, moments in self._moments.items():
            rates = (decay.m, decay.v, decay.bias_correction)
            if rates not in saved_by_decay:
                raise StateError(f"expected moments with decay {rates}, got {sorted(saved_by_decay)}")
            moments.check_state(saved_by_decay[rates], strict)
            pairs.append((moments, saved_by_decay[rates]))
        return pairs

    def __repr__(self) -> str:
        """The model and the signals."""
        return f"Meter({type(self.model).__name__}, {', '.join(map(repr, self._signals.values()))})"

    # Set-up

    def _make_moments(self) -> dict[Decay, Moments]:
        """One set of moments per decay, over all parameters that its signals look at."""
        wanted: dict[Decay, dict[str, Tensor]] = {}
        for signal in self._signals.values():
            if signal.decay is not None:
                wanted.setdefault(signal.decay, {}).update(select(self._trainable, signal.where))
        return {decay: Moments(parameters, decay) for decay, parameters in wanted.items()}

    def _make_scope(self, signal: Signal) -> Scope:
        decay = signal.decay
        scope = Scope(select(self._trainable, signal.where), None if decay is None else self._moments[decay])
        signal.init(scope)
        return scope

    # One batch

    def _admit(self, losses: Tensor, groups: Tensor | None) -> Batch:
        """Check a batch before anything is touched."""
        if not isinstance(losses, Tensor):
            raise LossError(
                f"expected a tensor of losses, one per sample, got {type(losses).__name__}; compute them with torch"
            )
        if losses.dim() != 1:
            raise LossError(
                f"expected one loss per sample, shape [B], got shape {list(losses.shape)}; "
                f"compute the losses with reduction='none' and average over everything but the samples"
            )
        if losses.shape[0] == 0:
            raise LossError("expected at least one sample, got a batch of none; skip it")
        if not losses.requires_grad:
            raise LossError(
                "expected losses that depend on the model, got a tensor without a graph; "
                "compute them with gradients enabled and without detach()"
            )
        if groups is not None and groups.shape != losses.shape:
            raise LossError(f"expected one group per sample, shape {list(losses.shape)}, got {list(groups.shape)}")
        if not self._engine.attached:
            raise ModelError(
                "expected an attached meter, got one that was detached, replaced by another meter on the same model, "
                "or copied; make a new one and load_state_dict() what this one's state_dict() gives"
            )
        if self._engine.depth:  # a forward was interrupted and has left aliases behind
            self._engine.restore()
        self._check_unchanged()
        batch = Batch(losses.detach(), groups)
        for signal in self._signals.values():
            signal.validate(batch)
        return batch

    def _check_unchanged(self) -> None:
        if self._structure.is_unchanged():
            return
        now = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        changed = [n for n in {**now, **self._trainable} if now.get(n) is not self._trainable.get(n)]
        if changed:
            raise ModelError(
                f"expected the model that the meter was attached to, got one whose trainable parameters differ: "
                f"{', '.join(changed[:5])}; call detach(), make a new meter, and give it this one's state_dict() with "
                f"load_state_dict(state, strict=False)"
            )

    def _weights(self, losses: Tensor, scale: Tensor | None) -> Tensor:
        """The gradient at each loss: 1 / B or 1, divided by the micro-batches, times the loss scale."""
        share = 1.0 if self._reduction == "sum" else 1.0 / losses.shape[0]
        weights = torch.full_like(losses.detach(), share / self._accumulate)
        return weights if scale is None else weights * scale.to(weights)

    def _plans(self, batch: Batch) -> dict[str, Mapping[str, Mapping[str, Reduction]]]:
        return {name: signal.reductions(self._scopes[name], batch) for name, signal in self._signals.items()}

    def _score(
        self, losses: Tensor, batch: Batch, weights: Tensor, backward: bool, retain_graph: bool
    ) -> dict[str, Tensor]:
        """Run the pass and make scores of what it reduced."""
        plans = self._plans(batch)
        plan = merged(plans)
        scored = {name: self._trainable[name] for name in plan}
        if self._verify and plan:  # plain norms say something even while the moments are still zero
            plan = {name: [*reductions, Reduction("l1")] for name, reductions in plan.items()}
            oracle = one_at_a_time(self._engine, losses, scored, plan)
        check = self._checker.begin(losses, scored, weights, self._wrapper.is_parallel) if plan else None
        with self._engine.run(losses.shape[0], plan, check) as current:
            trained = self._run(losses, weights, backward, retain_graph)
        self._check_missed(current, plan, trained, losses)
        if backward:
            self._since_step.note_freed(current.results, self._wrapper.is_parallel)
        self._checker.finish(current, losses)
        values = own_gradients(current, plan, weights) if plan else {}
        if self._verify and plan:
            self.verification = compare(values, oracle, plan, least_precision(losses, self._engine.dtypes()))
        shares = handed_out(values, plans)
        return {name: self._signals[name].scores(self._scopes[name], batch, own) for name, own in shares.items()}

    def _run(self, losses: Tensor, weights: Tensor, backward: bool, retain_graph: bool) -> set[str]:
        """Run the backward pass; without `.grad`, tell which parameters have received a gradient."""
        if backward:
            with self._since_step.catching():
                losses.backward(weights, retain_graph=retain_graph)
            return set()
        grads = torch.autograd.grad(losses, list(self._trainable.values()), weights, retain_graph, allow_unused=True)
        return {name for name, grad in zip(self._trainable, grads, strict=True) if grad is not None}

    def _check_missed(self, current: Pass, plan: Mapping[str, object], trained: set[str], losses: Tensor) -> None:
        """No parameter that was trained may go without scores."""
        missing = [name for name in plan if name not in current.results]
        check_complete(
            [name for name in missing if name in trained or self._since_step.was_trained(name)],
            self._engine.layouts.doubt(losses.shape[0]),
        )
        if plan and not current.results:
            check_reached(losses, self._trainable.values())

    def _put_back(self, before: Mapping[str, Tensor | None]) -> None:
        """Undo what a failed backward pass did to the gradients."""
        for name, grad in before.items():
            self._trainable[name].grad = grad
        self._since_step.drop_caught()

    def _advance(self, batch: Batch, scale: Tensor | None) -> None:
        """Take the batch into the signals' memory and, with the last micro-batch, into the moments."""
        for name, signal in self._signals.items():
            signal.observe(self._scopes[name], batch)
        self._batches += 1
        self._engine.armed = self._batches % self._every == 0
        summed = batch.samples if self._reduction == "sum" else 1.0
        self._since_step.add(summed if scale is None else scale * summed)
        if self._since_step.count < self._accumulate or not self._wrapper.synchronises:
            self._since_step.hold()
            return
        if self._moments and not self._since_step.incomplete:
            gradients, divisor = self._since_step.gradients(not self._wrapper.is_parallel), self._divisor()
            for moments in self._moments.values():
                moments.update(gradients, divisor)
        self._since_step.clear()

    def _divisor(self) -> Tensor | None:
        """What the gradient since the last step is the mean gradient times; None for 1."""
        factor = self._since_step.weight / self._accumulate
        if self._reduction == "mean" and isinstance(factor, float) and factor == 1.0:  # so it is on all ranks
            return None
        device = next(iter(self._trainable.values())).device
        return self._wrapper.mean_over_ranks(torch.as_tensor(factor, device=device))

    def _deliver(self, scores: dict[str, Tensor] | None) -> Scores:
        if scores is None:
            return cast(Scores, None)
        detached = {
            name: value.detach().to(torch.promote_types(value.dtype, torch.float32)) for name, value in scores.items()
        }
        return cast(Scores, next(iter(detached.values())) if self._single else detached)


def _names(plan: Mapping[str, Mapping[str, Reduction]]) -> set[str]:
    return {name for by_parameter in plan.values() for name in by_parameter}


def _probe(parameters: Mapping[str, Tensor]) -> Batch:
    """A batch of one sample, to ask signals what they will want."""
    return Batch(next(iter(parameters.values())).new_zeros(1))


def _scale_of(scaler: LossScaler | None, like: Tensor) -> Tensor | None:
    """The loss scale as a tensor, read without waiting for the device."""
    return None if scaler is None else scaler.scale(torch.ones((), device=like.device))
