"""Per-sample gradients of any function, by replaying it one sample at a time.

This serves whatever has no rule: a module that the registry does not know, and single operations on
parameters that a forward uses directly. The function is run again on the inputs that were saved, as a
batch of one sample, vectorised over the samples of a block with `vmap`, or in a loop where `vmap` cannot.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headway.errors import RuleError
from headway.grads.layout import BY_SEGMENT, Layouts, flat_or_shared, no_samples
from headway.grads.passes import Contribution, Pass
from headway.grads.persample import Dense, PerSample

if TYPE_CHECKING:
    from headway.grads.engine import Engine

Leaves = Mapping[str, Tensor]
ReplayFn = Callable[[Leaves, Sequence[Tensor], Tensor], Sequence[Tensor]]
"""(parameters, tensors of one sample, its rows' numbers [T]) -> outputs for a batch of these T rows.

A sample has one row, T = 1, unless the call was declared flat."""

Found = tuple[dict[str, Tensor], list[Tensor]]
"""What a replay of c samples gives: gradients by name [c, *shape], unless they are left out, and outputs [c, ...]."""

Split = tuple[bool, ...]
"""Which of a call's tensors are split by sample."""

Splits = dict[Hashable, dict[tuple[int | None, ...], Split]]
"""What checked replays have found: call, dimensions of its tensors that hold the samples -> what is split by sample."""


def shape_pattern(shapes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Shapes up to the numbers themselves: which sizes are 1, and which are equal to each other.

    What is split by sample in one call of a function is so in every call of the same pattern.
    """
    letters = {1: 0}
    return tuple(tuple(letters.setdefault(size, len(letters)) for size in shape) for shape in shapes)


@dataclass(frozen=True)
class Surroundings:
    """What a call depends on besides its arguments: autocast, and the random numbers that it draws.

    Attributes:
        device: where the call's tensors are.
        autocast: the dtype of autocast there, or None.
        random: the states of the host's and the device's random generators before the call, if they were asked for.
    """

    device: torch.device
    autocast: torch.dtype | None
    random: tuple[Tensor, ...] = ()

    @classmethod
    def of(cls, device: torch.device, random: bool = True) -> Surroundings:
        """The present ones."""
        kind = device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return cls(device, autocast, _random_states(device) if random else ())

    def has_drawn(self) -> bool:
        """Whether random numbers were drawn since."""
        return not all(map(torch.equal, self.random, _random_states(self.device)))

    def settled(self) -> Surroundings:
        """The same without the random states, if no random numbers were drawn since."""
        return self if self.has_drawn() else Surroundings(self.device, self.autocast)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Run something as the call was run; the random numbers of the training around it stay as they are."""
        autocast = nullcontext() if self.autocast is None else torch.autocast(self.device.type, dtype=self.autocast)
        others = _accelerators(self.device)
        kind = self.device.type if others else "cuda"
        with torch.random.fork_rng(devices=others, device_type=kind), autocast:
            self.rewind()
            yield

    def rewind(self) -> None:
        """Let the generators draw again what the call drew."""
        for index, state in enumerate(self.random):
            if index == 0:
                torch.set_rng_state(state)
            else:
                getattr(torch, self.device.type).set_rng_state(state, self.device)


def _accelerators(device: torch.device) -> list[torch.device]:
    """The device, if it has a random generator besides the host's."""
    return [device] if device.type in ("cuda", "xpu") else []


def _random_states(device: torch.device) -> tuple[Tensor, ...]:
    others = (getattr(torch, device.type).get_rng_state(one) for one in _accelerators(device))
    return torch.get_rng_state(), *others


@dataclass
class Function:
    """A function whose per-sample gradients are found by replaying it.

    Attributes:
        name: how errors call it.
        replay: the function of parameters and one sample's tensors.
        leaves: the parameters by name.
        call: what tells this call from others of the function, as far as the samples are concerned.
        splits: what earlier replays have found; this one adds to it.
        surroundings: autocast as it was, and the random state if the call has drawn random numbers.
        way_out: what to do if its outputs do not show the samples, if not what a module can do.
        loop: whether vmap has failed, so that samples are replayed one after another.
    """

    name: str
    replay: ReplayFn
    leaves: Mapping[str, Tensor]
    call: Hashable
    splits: Splits
    surroundings: Surroundings
    way_out: str | None = None
    loop: bool = False

    @property
    def numel(self) -> int:
        """Numbers in the parameters."""
        return sum(leaf.numel() for leaf in self.leaves.values())


def with_tensors(leaves: Sequence[Any], places: Sequence[int], tensors: Sequence[Tensor]) -> list[Any]:
    """The leaves of a call's arguments, with tensors in their places."""
    filled = list(leaves)
    for place, tensor in zip(places, tensors, strict=True):
        filled[place] = tensor
    return filled


def sample_dim(tensor: Tensor, samples: int, preferred: int) -> int | None:
    """The dimension of a tensor that holds the samples, or None."""
    found = (dim for dim in (preferred, 1 - preferred) if tensor.dim() > dim and tensor.shape[dim] == samples)
    return next(found, None)


class Replay:
    """One call of a `Function`, as a contribution.

    Args:
        function: what was called.
        tensors: its tensor inputs.
        grads: gradients at its outputs.
        samples: B.
        layouts: what the user said about layouts.
        outputs: the outputs themselves, where the call is new, to check that the replay gives them again.

    Raises:
        LayoutError: an output does not show its samples, or can be read in two ways.
        RuleError: the replay differs from the call, because it is random or mixes the samples.
    """

    def __init__(
        self,
        function: Function,
        tensors: Sequence[Tensor],
        grads: Sequence[Tensor],
        samples: int,
        layouts: Layouts,
        outputs: Sequence[Tensor] | None = None,
    ) -> None:
        self.function = function
        self._footprint = function.numel + sum(t.numel() for t in [*tensors, *grads]) // samples
        self._tensors = tensors
        preferred = 1 if layouts.declared(function.name) == "positions-first" else 0
        self._each = layouts.rows_each(function.name, grads[0].shape[0] if grads[0].dim() else 0, samples)
        rows = samples * self._each
        self._in_dims = [sample_dim(t, rows, preferred) for t in tensors]
        self._in_each = [self._each] * len(tensors)
        for i, tensor in enumerate(tensors):  # a router may be given [B, T, d], and give [B * T, experts]
            if self._in_dims[i] is None and self._each > 1 and tensor.shape[:2] == (samples, self._each):
                self._in_dims[i], self._in_each[i] = 0, 1
        out_dims = [sample_dim(g, rows, preferred) for g in grads]
        for dim, grad in zip(out_dims, grads, strict=True):
            if dim is None:
                own = f"{flat_or_shared(function.name)}; {BY_SEGMENT}; or give it a rule with register_rule"
                where = "dimension 0 or 1 of its output"
                raise no_samples(function.name, where, grad.shape, samples, function.way_out or own)
            layouts.refuse_two_readings(function.name, grad, samples)
        dims = [dim or 0 for dim in out_dims]
        self._grads = [self._split(g, dim) for g, dim in zip(grads, dims, strict=True)]
        by_shape = tuple(dim is not None for dim in self._in_dims)
        self._mapped = function.splits.get(function.call, {}).get(tuple(self._in_dims), by_shape)
        if outputs is not None:
            passing = self._check([self._split(o, dim) for o, dim in zip(outputs, dims, strict=True)], layouts)
            if passing == 1:  # this batch tells the readings apart; if it does not, the next one is looked at too
                function.splits.setdefault(function.call, {})[tuple(self._in_dims)] = self._mapped

    def _split(self, tensor: Tensor, dim: int, each: int | None = None) -> Tensor:
        """View a tensor with the samples in dimension 0, and a sample's rows where the samples were."""
        return tensor.unflatten(dim, (-1, each or self._each)).movedim(dim, 0)

    @property
    def contribution(self) -> Contribution:
        """What the call adds to the gradients of its parameters."""
        return Contribution(tuple(self.function.leaves), self._footprint, self.block)

    def block(self, start: int, stop: int) -> Mapping[str, PerSample]:
        """See `Contribution.block`."""
        grads, _ = self._run(start, stop)
        return {name: Dense(value) for name, value in grads.items()}

    def _check(self, outputs: Sequence[Tensor], layouts: Layouts) -> int:
        """Find which tensors are split by sample, by asking which choices give the outputs again; count these."""
        by_shape = tuple(dim is not None for dim in self._in_dims)
        only_inputs = tuple(
            split and (t.requires_grad or t.is_floating_point())
            for split, t in zip(by_shape, self._tensors, strict=True)
        )
        first_only = tuple(split and not any(by_shape[:i]) for i, split in enumerate(by_shape))
        problem = "its outputs come out different"
        passing = []
        for mapped in dict.fromkeys((by_shape, only_inputs, first_only)):
            self._mapped = mapped
            try:
                with torch.no_grad():
                    _, again = self._run(0, len(outputs[0]), only_outputs=True)
            except (RuntimeError, ValueError, IndexError) as error:
                problem = str(error).splitlines()[0]
                continue
            if all(close(x, y) for x, y in zip(again, outputs, strict=True)):
                passing.append(mapped)
        if not passing:
            raise RuleError(
                f"{self.function.name}: expected a call that treats samples apart and gives the same result twice, "
                f"got one that does not ({problem}); if it draws random numbers for each sample, draw them in a "
                f"submodule such as nn.Dropout, otherwise give it a rule with register_rule"
                f"{layouts.doubt(len(outputs[0]))}"
            )
        self._mapped = passing[0]
        return len(passing)

    def _run(self, start: int, stop: int, only_outputs: bool = False) -> Found:
        """The replay of a range of samples."""
        dims = zip(self._tensors, self._in_dims, self._in_each, self._mapped, strict=True)
        tensors = [
            self._split(t, dim, each)[start:stop] if split and dim is not None else t for t, dim, each, split in dims
        ]
        grads = [g[start:stop] for g in self._grads]
        index = torch.arange(start * self._each, stop * self._each, device=grads[0].device).view(-1, self._each)
        with self.function.surroundings.restored(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # vmap says where it is slow
            if not self.function.loop:
                try:
                    return self._vectorised(tensors, grads, index, only_outputs)
                except (RuntimeError, ValueError, IndexError):
                    self.function.loop = True
                    self.function.surroundings.rewind()
            return self._looped(tensors, grads, index, only_outputs)

    def _vectorised(
        self, tensors: Sequence[Tensor], grads: Sequence[Tensor], index: Tensor, only_outputs: bool
    ) -> Found:
        leaves = {name: leaf.detach() for name, leaf in self.function.leaves.items()}

        def one(tensors: list[Tensor], grads: list[Tensor], index: Tensor) -> Found:
            if only_outputs:
                return {}, list(self.function.replay(leaves, tensors, index))
            outputs, pull = torch.func.vjp(lambda p: list(self.function.replay(p, tensors, index)), leaves)[:2]
            cotangents = [g.to(o.dtype) for g, o in zip(grads, outputs, strict=True)]
            return pull(cotangents)[0], outputs

        in_dims = ([0 if split else None for split in self._mapped], 0, 0)
        return torch.func.vmap(one, in_dims=in_dims, randomness="same")(list(tensors), list(grads), index)

    def _looped(self, tensors: Sequence[Tensor], grads: Sequence[Tensor], index: Tensor, only_outputs: bool) -> Found:
        rows: list[Sequence[Tensor]] = []
        outputs: list[list[Tensor]] = []
        for i in range(len(index)):
            leaves = {name: leaf.detach().requires_grad_() for name, leaf in self.function.leaves.items()}
            self.function.surroundings.rewind()
            own = [t[i] if split else t for t, split in zip(tensors, self._mapped, strict=True)]
            with torch.set_grad_enabled(not only_outputs):
                result = self.function.replay(leaves, own, index[i])
            outputs.append([o.detach() for o in result])
            if not only_outputs:
                cotangents = [g[i].to(o.dtype) for g, o in zip(grads, result, strict=True)]
                wanted = list(leaves.values())
                rows.append(torch.autograd.grad(result, wanted, cotangents, allow_unused=True, materialize_grads=True))
        found = {
            name: torch.stack(own) for name, own in zip(self.function.leaves, zip(*rows, strict=True), strict=False)
        }
        return found, [torch.stack(column) for column in zip(*outputs, strict=True)]


class ReplayedCall:
    """A listener on a call that is replayed, unless a rule describes it.

    Args:
        engine: the engine.
        function: what was called.
        outputs: those that are observed.
        tensors: the tensors of the call.
        by_rule: gives the contribution from the saved tensors, the gradient at the output and B; None for a replay.
    """

    def __init__(
        self,
        engine: Engine,
        function: Function,
        outputs: Sequence[Tensor],
        tensors: Sequence[Tensor],
        by_rule: Callable[[Sequence[Tensor], Tensor, int], Contribution | None] | None = None,
    ) -> None:
        self.engine, self.path, self.names = engine, function.name, tuple(function.leaves)
        self._function, self._by_rule = function, by_rule
        engine.count_use(self.names, self.path, [*outputs, *tensors], function.call)
        self.kept = [output.detach().clone() for output in outputs] if engine.is_new(function) else None

    def collect(self, current: Pass, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        layouts, samples = self.engine.layouts, current.samples
        layouts.try_flat(self.path, grads[0].shape, samples)
        kept, self.kept = layouts.in_order(self.kept), None
        with self.engine.paused():
            found = None if self._by_rule is None else self._by_rule(saved, grads[0], samples)
            if found is None:
                found = Replay(self._function, saved, grads, samples, layouts, kept).contribution
            else:
                layouts.refuse_two_readings(self.path, grads[0], samples)
                self.engine.splits.setdefault(self._function.call, {})  # outputs need no check
            current.add(found)


def close(x: Tensor, y: Tensor) -> bool:
    """Equal up to the rounding of another order of summation."""
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-3}.get(y.dtype, 5e-2)
    scale = float(y.abs().max()) if y.numel() else 0.0
    return x.shape == y.shape and bool(((x - y).abs() <= tolerance * max(scale, 1e-30)).all())
