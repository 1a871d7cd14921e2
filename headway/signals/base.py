"""What a signal is: it asks for reductions before the backward pass and makes scores of them after it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from headway.errors import SignalError, StateError
from headway.grads import Reduction
from headway.grads.persample import Kind
from headway.grads.plans import Together
from headway.moments import WHOLE, Decay, Flat, Moments, Parts

Where = str | Sequence[str] | Callable[[str, Tensor], bool] | None
"""Which parameters a signal looks at: a pattern or several (as in fnmatch), a predicate, or None for all."""

Unit = Literal["sample", "batch"]
"""Whose gradient is meant: that of the sample's own loss, or that of its share in the mean over the batch."""

Plan = Mapping[str, Mapping[str, Reduction]]
"""The name of a reduction -> parameter -> the reduction."""

Values = Mapping[str, Mapping[str, Tensor]]
"""The name of a reduction -> parameter -> one number per sample [B], for the sample's own gradient."""

_ATTRIBUTE = re.compile(r"^    (\w+): .*(?:\n {5,}.*)*", re.MULTILINE)
"""The explanation of an attribute in a docstring without indentation."""


@dataclass
class Scope:
    """What a signal works with: its parameters, their moments, and its memory.

    Attributes:
        parameters: the parameters that the signal looks at, by name.
        moments: the moments that it asked for, or None.
        memory: tensors that belong to its state and are saved with the meter.
        cache: tensors that can be made again.
        pending: what `scores` leaves for `observe` of the same batch; forgotten when the next batch comes.
        ratios: those of the moments, which can be made again.
        plan: the reductions that were asked for with certain weights, which stay where they are.
        warns: whether the signal may still warn of a floor that decides nearly all.
        version: the state of the moments that `cache` and `ratios` belong to.
        parts: how the parameters are sharded across ranks. Sharded ones are DTensors, and weights are either DTensors
            or this rank's shards, as those of the moments are.
    """

    parameters: Mapping[str, Tensor]
    moments: Moments | None = None
    memory: dict[str, Tensor] = field(default_factory=dict)
    cache: dict[str, Tensor] = field(default_factory=dict)
    pending: dict[str, Tensor] = field(default_factory=dict)
    ratios: Flat | None = None
    plan: tuple[Mapping[str, Tensor], Plan] | None = None
    warns: bool = True
    version: tuple[int, ...] = ()
    parts: Parts = WHOLE

    @cached_property
    def size(self) -> int:
        """d, the number of scored parameters."""
        return sum(parameter.numel() for parameter in self.parameters.values())

    def reductions(self, key: str, kind: Kind, weights: Mapping[str, Tensor]) -> Plan:
        """One weighted reduction of every parameter, made anew only if other tensors hold the weights."""
        if self.plan is None or self.plan[0] is not weights:
            self.plan = weights, {key: {name: Reduction(kind, weight) for name, weight in weights.items()}}
        return self.plan[1]

    def squares(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The squared length of each tensor beside a parameter, over all ranks that have a shard of it."""
        own = {name: self.parts.shard_of(tensor).square().sum() for name, tensor in tensors.items()}
        if self.parts is WHOLE:
            return own
        return dict(zip(own, self.parts.total(torch.stack(list(own.values()))), strict=True))

    def length(self, tensors: Iterable[Tensor], like: Tensor) -> Tensor:
        """The length of tensors beside parameters, all taken together as one vector, in the type of another tensor."""
        norms = [torch.linalg.vector_norm(self.parts.shard_of(tensor)).to(like) for tensor in tensors]
        own = torch.linalg.vector_norm(torch.stack(norms))
        return own if self.parts is WHOLE else self.parts.total(own.square()).sqrt()

    def remember(self, key: str, *shape: int, dtype: torch.dtype | None = torch.float64) -> None:
        """Begin a tensor of zeros in the memory, where the parameters are."""
        device = next(iter(self.parameters.values())).device
        self.memory[key] = torch.zeros(shape, dtype=dtype, device=device)

    def require_moments(self) -> Moments:
        """The moments; a signal that asked for them has them."""
        assert self.moments is not None
        return self.moments


@dataclass(frozen=True)
class Batch:
    """One batch as a signal sees it.

    Attributes:
        losses: one loss per sample [B], detached.
        groups: the group (class, source) of each sample [B], or None.
        elsewhere: samples of the same batch on other ranks, where these share the parameters.
    """

    losses: Tensor
    groups: Tensor | None = None
    elsewhere: int = 0

    @property
    def samples(self) -> int:
        """B."""
        return self.losses.shape[0]

    @property
    def joined(self) -> int:
        """B of all ranks that share the parameters."""
        return self.samples + self.elsewhere


@runtime_checkable
class Signal(Protocol):
    """A score for every sample of a batch.

    A signal is configuration; whatever changes lives in the `Scope` that it is given. A class that derives from it
    leaves out the methods that have nothing to do.
    """

    @property
    def name(self) -> str:
        """The key of its scores where a meter has several signals."""

    @property
    def where(self) -> Where:
        """The parameters that it looks at."""

    @property
    def decay(self) -> Decay | None:
        """The moments that it needs, or None."""

    def init(self, scope: Scope) -> None:
        """Set up the signal's memory."""
        return

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """Say what to compute during the backward pass."""
        return {}

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """Make one score per sample [B] of it."""
        raise NotImplementedError

    def validate(self, batch: Batch) -> None:
        """Refuse a batch that the signal cannot take, before anything is touched."""
        return

    def observe(self, scope: Scope, batch: Batch) -> None:
        """Take the batch into the signal's memory, after it was scored."""
        return

    def end_epoch(self, scope: Scope) -> None:
        """Note that an epoch has ended."""
        return


@dataclass(frozen=True, kw_only=True)
class BaseSignal(Signal):
    """A signal of the three arguments that all have; it asks for no moments, and for no reductions.

    Attributes:
        name: the key of the scores where a meter has several signals.
        where: the parameters to look at: a pattern or several (as in fnmatch, such as "head.*"), a predicate of
            name and parameter, or None for all.
        scale: a factor on the scores.
    """

    name: str = "signal"
    where: Where = None
    scale: float = 1.0

    def __init_subclass__(cls) -> None:
        """Add inherited attributes to the docstring, so that `help()` explains every argument."""
        super().__init_subclass__()
        own, inherited = (inspect.cleandoc(each.__doc__ or "") for each in cls.__mro__[:2])
        known = {match[1] for match in _ATTRIBUTE.finditer(own)}
        more = [match[0] for match in _ATTRIBUTE.finditer(inherited) if match[1] not in known]
        if own and more:
            heading = [] if "\nAttributes:\n" in own else ["\nAttributes:"]
            cls.__doc__ = "\n".join([own, *heading, *more])

    @property
    def decay(self) -> Decay | None:
        """No moments."""
        return None


def select(parameters: Mapping[str, Tensor], where: Where) -> dict[str, Tensor]:
    """The parameters that `where` picks, in the model's order.

    Raises:
        SignalError: it picks none; the message lists the names.
    """
    if where is None:
        return dict(parameters)
    if callable(where):
        chosen = {name: p for name, p in parameters.items() if where(name, p)}
    else:
        patterns = [where] if isinstance(where, str) else list(where)
        chosen = {name: p for name, p in parameters.items() if any(fnmatchcase(name, pat) for pat in patterns)}
    if not chosen:
        known = ", ".join(list(parameters)[:20])
        raise SignalError(f"expected where={where!r} to pick a trainable parameter, got none; there are: {known}")
    return chosen


def moments_by_decay(
    signals: Iterable[Signal], parameters: Mapping[str, Tensor], parts: Parts = WHOLE
) -> dict[Decay, Moments]:
    """One set of moments per decay, over all parameters that its signals look at."""
    wanted: dict[Decay, dict[str, Tensor]] = {}
    for signal in signals:
        if signal.decay is not None:
            wanted.setdefault(signal.decay, {}).update(select(parameters, signal.where))
    return {decay: Moments(chosen, decay, parts) for decay, chosen in wanted.items()}


def total(values: Mapping[str, Tensor]) -> Tensor:
    """Add the numbers of all parameters: one per sample [B]."""
    if isinstance(values, Together):
        return values.rows.sum(0)
    tensors = list(values.values())
    first = tensors[0]
    return torch.stack([tensor.to(first.device) for tensor in tensors]).sum(0)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value of an argument that is none of its choices."""
    if value not in choices:
        raise SignalError(f"expected {name} {' or '.join(map(repr, choices))}, got {value!r}")


def signals_by_name(signals: Any) -> dict[str, Signal]:
    """One signal, or several, by name.

    Raises:
        SignalError: none, two of one name, or something else.
    """
    several = isinstance(signals, Iterable) and not isinstance(signals, str | type | Signal)
    found: dict[str, Signal] = {}
    for signal in signals if several else [signals]:
        if isinstance(signal, type) and isinstance(signal, Signal):  # a class has all that its objects have
            raise SignalError(f"expected a signal such as headway.GMC(), got the class; call it: {signal.__name__}()")
        if not isinstance(signal, Signal):
            raise SignalError(f"expected a signal such as headway.GMC(), got {signal!r}")
        if signal.name in found:
            raise SignalError(f"expected signals of different names, got {signal.name!r} twice; pass name=")
        found[signal.name] = signal
    if not found:
        raise SignalError("expected at least one signal, got none")
    return found


def save_state(batches: int, moments: Mapping[Decay, Moments], scopes: Mapping[str, Scope]) -> dict[str, Any]:
    """A meter's state after so many batches: its moments, and the signals' memory."""
    memory = {name: {key: value.clone() for key, value in scope.memory.items()} for name, scope in scopes.items()}
    own = [each.state_dict() for each in moments.values()]
    return {"schema": 1, "batches": batches, "moments": own, "memory": memory}


def load_state(
    state: Mapping[str, Any], moments: Mapping[Decay, Moments], scopes: Mapping[str, Scope], strict: bool
) -> None:
    """Load the moments and the signals' memory from a meter's state, see there; nothing changes if it does not fit.

    Raises:
        StateError: it does not fit, or holds a number that it cannot have.
    """
    if state.get("schema") != 1:
        raise StateError(f"expected a meter's state of schema 1, got {state.get('schema')!r}")
    missing = [key for key in ("batches", "moments", "memory") if key not in state]
    if missing:
        raise StateError(f"expected a meter's state with {missing[0]!r}, got one without it")
    if not isinstance(state["batches"], int) or state["batches"] < 0:
        raise StateError(f"expected a number of batches from 0, got {state['batches']!r}")
    if set(state["memory"]) != set(scopes) or len(state["moments"]) != len(moments):
        raise StateError(f"expected a state of the signals {sorted(scopes)}, got {sorted(state['memory'])}")
    copies = []
    for name, scope in scopes.items():
        for key, value in scope.memory.items():
            saved = state["memory"][name].get(key)
            if saved is None or saved.shape != value.shape:
                raise StateError(f"{name}: expected memory {key!r} of shape {list(value.shape)}")
            parts = scope.parts if hasattr(value, "placements") else WHOLE
            copies.append((scope.parts.shard_of(value), parts.cut(key, saved)))
    saved_by_decay = {tuple(saved.get("decay", ())): saved for saved in state["moments"]}
    wanted = {astuple(decay): own for decay, own in moments.items()}
    for rates, own in wanted.items():
        if rates not in saved_by_decay:
            raise StateError(f"expected moments with decay {rates}, got {sorted(saved_by_decay)}")
        own.check_state(saved_by_decay[rates], strict)
    for rates, own in wanted.items():
        own.load_state_dict(saved_by_decay[rates], strict)
    for shard, saved in copies:
        shard.copy_(saved)
    for scope in scopes.values():
        scope.version = ()
