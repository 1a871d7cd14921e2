"""Per-sample gradients of any function, by replaying it one sample at a time.

This serves whatever has no rule: a module that the registry does not know, and single operations on
parameters that a forward uses directly. The function is run again on the inputs that were saved, as a
batch of one sample, vectorised over the samples of a block with `vmap`, or in a loop where `vmap` cannot.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headway.errors import LayoutError, RuleError
from headway.grads.layout import Layouts
from headway.grads.persample import Dense, PerSample

Leaves = Mapping[str, Tensor]
ReplayFn = Callable[[Leaves, Sequence[Tensor], Tensor], Sequence[Tensor]]
"""(parameters, tensors of one sample, index [1] of the sample) -> outputs for a batch of that one sample."""

Split = tuple[bool, ...]
"""Which of a call's tensors are split by sample."""

Splits = dict[Hashable, dict[tuple[int | None, ...], Split]]
"""What checked replays have found: call, dimensions of its tensors that have B entries -> what is split by sample."""


def shape_pattern(shapes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Shapes up to the numbers themselves: which sizes are 1, and which are equal to each other.

    What is split by sample in one call of a function is so in every call of the same pattern.
    """
    letters = {1: 0}
    return tuple(tuple(letters.setdefault(size, len(letters)) for size in shape) for shape in shapes)


@dataclass
class Function:
    """A function whose per-sample gradients are found by replaying it.

    Attributes:
        name: how errors call it.
        replay: the function of parameters and one sample's tensors.
        leaves: the parameters by name.
        call: what tells this call from others of the function, as far as the samples are concerned.
        splits: what earlier replays have found; this one adds to it.
        numel: numbers in the parameters.
        loop: whether vmap has failed, so that samples are replayed one after another.
    """

    name: str
    replay: ReplayFn
    leaves: Mapping[str, Tensor]
    call: Hashable
    splits: Splits
    loop: bool = False
    autocast: tuple[str, bool, torch.dtype] | None = None
    numel: int = field(init=False)

    def __post_init__(self) -> None:
        """Count the parameters and note whether autocast is on."""
        self.numel = sum(leaf.numel() for leaf in self.leaves.values())
        device = next(iter(self.leaves.values())).device.type
        if torch.is_autocast_enabled(device):
            self.autocast = (device, True, torch.get_autocast_dtype(device))

    def precision(self) -> AbstractContextManager[object]:
        """The autocast state of the forward pass."""
        if self.autocast is None:
            return nullcontext()
        device, enabled, dtype = self.autocast
        return torch.autocast(device, enabled=enabled, dtype=dtype)


def sample_dim(tensor: Tensor, samples: int, preferred: int) -> int | None:
    """The dimension of a tensor that holds the samples, or None."""
    order = (preferred, 1 - preferred)
    for dim in order:
        if tensor.dim() > dim and tensor.shape[dim] == samples:
            return dim
    return None


class Replay:
    """The contribution of one call of a `Function`.

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
        """Find the samples in every tensor, and check the replay if outputs are given."""
        self.function = function
        self.params = tuple(function.leaves)
        self.footprint = function.numel + sum(t.numel() for t in [*tensors, *grads]) // samples
        self._tensors = tensors
        preferred = 1 if layouts.declared(function.name) == "positions-first" else 0
        self._in_dims = [sample_dim(t, samples, preferred) for t in tensors]
        out_dims = [sample_dim(g, samples, preferred) for g in grads]
        for dim, grad in zip(out_dims, grads, strict=True):
            if dim is None:
                raise LayoutError(
                    f"{function.name}: expected {samples} samples (one per loss) in dimension 0 or 1 of its "
                    f"output, got shape {list(grad.shape)}; give it a rule with register_rule, or pass "
                    f"layout={{{function.name!r}: 'shared'}} if the call sees no samples"
                )
            layouts.refuse_two_readings(function.name, grad, samples)
        self._out_dims = [dim or 0 for dim in out_dims]
        self._grads = [g.movedim(dim, 0) for g, dim in zip(grads, self._out_dims, strict=True)]
        by_shape = tuple(dim is not None for dim in self._in_dims)
        self._mapped = function.splits.get(function.call, {}).get(tuple(self._in_dims), by_shape)
        if outputs is not None:
            self._check([o.movedim(dim, 0) for o, dim in zip(outputs, self._out_dims, strict=True)], layouts)
            function.splits.setdefault(function.call, {})[tuple(self._in_dims)] = self._mapped

    def block(self, start: int, stop: int) -> Mapping[str, PerSample]:
        """See `Contribution.block`."""
        grads, _ = self._run(start, stop)
        return {name: Dense(value) for name, value in grads.items()}

    def _check(self, outputs: Sequence[Tensor], layouts: Layouts) -> None:
        """Find which tensors are split by sample, by asking which choice gives the outputs again."""
        by_shape = tuple(dim is not None for dim in self._in_dims)
        only_inputs = tuple(
            split and (t.requires_grad or t.is_floating_point())
            for split, t in zip(by_shape, self._tensors, strict=True)
        )
        first_only = tuple(split and not any(by_shape[:i]) for i, split in enumerate(by_shape))
        problem = "its outputs come out different"
        for mapped in dict.fromkeys((by_shape, only_inputs, first_only)):
            self._mapped = mapped
            try:
                _, again = self._run(0, len(outputs[0]))
            except (RuntimeError, ValueError) as error:
                problem = str(error).splitlines()[0]
                continue
            if all(close(x, y) for x, y in zip(again, outputs, strict=True)):
                return
        raise RuleError(
            f"{self.function.name}: expected a call that treats samples apart and gives the same result twice, "
            f"got one that does not ({problem}); if it draws random numbers, draw them in a submodule such as "
            f"nn.Dropout, otherwise give it a rule with register_rule{layouts.doubt(len(outputs[0]))}"
        )

    def _run(self, start: int, stop: int) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Gradients by name [c, *shape] and outputs [c, ...] for a range of samples."""
        mapped = self._mapped
        tensors = [
            t.movedim(dim, 0)[start:stop] if split and dim is not None else t
            for t, dim, split in zip(self._tensors, self._in_dims, mapped, strict=True)
        ]
        grads = [g[start:stop] for g in self._grads]
        index = torch.arange(start, stop, device=grads[0].device)
        with ExitStack() as stack:
            stack.enter_context(self.function.precision())
            # Replays must not disturb the random numbers of the training that they watch.
            stack.enter_context(torch.random.fork_rng(devices=[]))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # vmap says where it is slow
            if not self.function.loop:
                try:
                    return self._vectorised(tensors, mapped, grads, index)
                except (RuntimeError, ValueError):
                    self.function.loop = True
            return self._looped(tensors, mapped, grads, index)

    def _one(self, leaves: Leaves, tensors: Sequence[Tensor], mapped: Sequence[bool], index: Tensor) -> list[Tensor]:
        """Run the function on a batch of one sample; outputs without the sample dimension."""
        batch = [
            t.unsqueeze(dim or 0) if split else t for t, dim, split in zip(tensors, self._in_dims, mapped, strict=True)
        ]
        outputs = self.function.replay(leaves, batch, index.reshape(1))
        return [o.select(dim, 0) for o, dim in zip(outputs, self._out_dims, strict=True)]

    def _vectorised(
        self, tensors: Sequence[Tensor], mapped: Sequence[bool], grads: Sequence[Tensor], index: Tensor
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        leaves = {name: leaf.detach() for name, leaf in self.function.leaves.items()}

        def one(tensors: list[Tensor], grads: list[Tensor], index: Tensor) -> tuple[dict[str, Tensor], list[Tensor]]:
            outputs, pull = torch.func.vjp(lambda p: self._one(p, tensors, mapped, index), leaves)[:2]
            cotangents = [g.to(o.dtype) for g, o in zip(grads, outputs, strict=True)]
            return pull(cotangents)[0], outputs

        in_dims = ([0 if split else None for split in mapped], 0, 0)
        result: tuple[dict[str, Tensor], list[Tensor]]
        result = torch.func.vmap(one, in_dims=in_dims)(list(tensors), list(grads), index)
        return result

    def _looped(
        self, tensors: Sequence[Tensor], mapped: Sequence[bool], grads: Sequence[Tensor], index: Tensor
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        names = list(self.function.leaves)
        rows: list[list[Tensor]] = []
        outputs: list[list[Tensor]] = []
        for i in range(len(index)):
            leaves = {name: leaf.detach().requires_grad_() for name, leaf in self.function.leaves.items()}
            with torch.enable_grad():
                own = [t[i] if split else t for t, split in zip(tensors, mapped, strict=True)]
                result = self._one(leaves, own, mapped, index[i])
            cotangents = [g[i].to(o.dtype) for g, o in zip(grads, result, strict=True)]
            rows.append(
                list(
                    torch.autograd.grad(
                        result,
                        [leaves[n] for n in names],
                        cotangents,
                        allow_unused=True,
                        materialize_grads=True,
                    )
                )
            )
            outputs.append([o.detach() for o in result])
        stacked = {name: torch.stack(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
        return stacked, [torch.stack(column) for column in zip(*outputs, strict=True)]


def close(x: Tensor, y: Tensor) -> bool:
    """Equal up to the rounding of another order of summation."""
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-3}.get(y.dtype, 5e-2)
    scale = float(y.abs().max()) if y.numel() else 0.0
    return x.shape == y.shape and bool(((x - y).abs() <= tolerance * max(scale, 1e-30)).all())
