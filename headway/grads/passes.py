"""One backward pass: contributions come in layer by layer and leave as one number per sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.errors import RuleError
from headway.grads.compound import fold, join
from headway.grads.persample import PerSample, Reduction, Sum
from headway.grads.scratch import Scratch

BLOCK = 2**21
"""Numbers that a block of samples may occupy while it is reduced: 8 MiB of float32, to stay in the last-level cache."""


def _without_autocast() -> ExitStack:
    """Reduce in the precision of the factors, although the backward pass was called inside autocast."""
    off = ExitStack()
    for kind in {"cpu", getattr(torch.accelerator.current_accelerator(), "type", "cpu")}:
        if torch.is_autocast_enabled(kind):
            off.enter_context(torch.autocast(kind, enabled=False))
    return off


@dataclass(frozen=True)
class Contribution:
    """What one call of a module adds to the per-sample gradients of some parameters.

    Attributes:
        params: names of the parameters, as in the model.
        footprint: numbers that one sample needs while it is reduced.
        block: gives the gradients of the samples from a first one to before a last one, by parameter name.
    """

    params: Sequence[str]
    footprint: int
    block: Callable[[int, int], Mapping[str, PerSample]]

    def folded(self, rows: int, size: int) -> Contribution:
        """The contribution of samples that have `rows` rows each, one after another, from that of the rows.

        A sample needs what its rows need apart from a gradient, and one gradient, of `size` numbers.
        """
        if rows == 1:
            return self

        def block(start: int, stop: int) -> Mapping[str, PerSample]:
            forms = self.block(start * rows, stop * rows)
            return {name: fold(form, rows) for name, form in forms.items()}

        return Contribution(self.params, rows * max(0, self.footprint - size) + size, block)


class Pass:
    """The reductions of one backward pass.

    Args:
        samples: B, the number of losses.
        plan: the reductions that each parameter needs.
        at_once: tells whether a parameter has a single use. The contributions of several must be added before they are
            reduced; such parameters wait for the end of the pass.
        scratch: the reused buffer.
        check: a weight for each sample [B], on a pass to be checked (see `headway.grads.checks`). The weighted sums of
            the samples' gradients are then added up in `totals`, flat, and the squares of their norms, times the
            squared weights, in `squares`, one number per parameter.
        sizes: numbers in each parameter.

    Attributes:
        error: what has kept the pass from reducing everything, where it could not be raised at once.
    """

    error: Exception | None = None

    def __init__(
        self,
        samples: int,
        plan: Mapping[str, Sequence[Reduction]],
        at_once: Callable[[str], bool],
        scratch: Scratch,
        check: Tensor | None,
        sizes: Mapping[str, int],
    ) -> None:
        self.samples = samples
        self.plan = plan
        self.check = check
        self.squares: dict[str, Tensor] = {}
        self.results: dict[str, list[Tensor]] = {}
        self.totals: dict[str, Tensor] = {}
        self._at_once = at_once
        self._scratch = scratch
        self._sizes = sizes
        self._waiting: dict[str, list[Contribution]] = {}

    def add(self, contribution: Contribution, into: Mapping[str, Sum] | None = None) -> bool:
        """Reduce a contribution now, or keep what belongs to parameters with further uses.

        Args:
            contribution: what a module's call adds.
            into: for some parameters a sum, to which the sum over the samples is added on the way.

        Returns:
            Whether everything was reduced, so that `into` holds the sums.
        """
        now = self._due(contribution.params, contribution)
        with _without_autocast():
            self._reduce([contribution], now, into or {})
        return len(now) == len(contribution.params)

    def _due(self, names: Sequence[str], contribution: Contribution) -> list[str]:
        """The parameters that a contribution can be reduced for at once; for the others it waits."""
        for name in names:
            if not self._at_once(name):
                self._waiting.setdefault(name, []).append(contribution)
        return [name for name in names if self._at_once(name)]

    def finish(self) -> dict[str, list[Tensor]]:
        """Reduce what has waited, and return for each parameter one tensor [B] per reduction."""
        groups: dict[tuple[int, ...], list[str]] = {}
        for name, contributions in self._waiting.items():
            groups.setdefault(tuple(id(c) for c in contributions), []).append(name)
        with _without_autocast():
            for names in groups.values():
                self._reduce(self._waiting[names[0]], names, {})
        self._waiting.clear()
        return self.results

    def _reduce(self, contributions: Sequence[Contribution], names: Sequence[str], into: Mapping[str, Sum]) -> None:
        for name in names:
            if name in self.results:
                raise RuleError(
                    f"{name}: expected all its uses before the backward pass, got another one after its gradients "
                    f"were reduced (a checkpointed segment that shares it?); use checkpoint(use_reentrant=False)"
                )
        footprint = sum(contribution.footprint for contribution in contributions)
        if len(contributions) > 1:  # the gradient itself has to be formed
            footprint += max(self._sizes[name] for name in names)
        if len(contributions) == 1 and self.samples * footprint <= BLOCK and self.check is None:
            whole = contributions[0].block(0, self.samples)  # the common case, without the bookkeeping
            for name in names:
                self.results[name] = whole[name].reduce(self.plan[name], self._scratch, into.get(name))
            return
        pieces: dict[str, list[list[Tensor]]] = {name: [] for name in names}
        for start, stop in self._blocks(footprint):
            parts = [contribution.block(start, stop) for contribution in contributions]
            for name in names:
                gradients = join([part[name] for part in parts if name in part])
                if self.check is not None:
                    added = gradients.total(self.check[start:stop])
                    self.totals[name] = self.totals[name] + added if name in self.totals else added
                pieces[name].append(gradients.reduce(self.plan[name], self._scratch, into.get(name)))
                if self.check is not None:  # on its own, so that a check changes no last bit of a score
                    pieces[name][-1] += gradients.reduce([Reduction("sq")], self._scratch, None)
        for name, rows in pieces.items():
            self.results[name] = [c[0] if len(c) == 1 else torch.cat(c) for c in zip(*rows, strict=True)]
            if self.check is not None:
                squares = self.results[name].pop()
                self.squares[name] = torch.dot(squares, self.check.to(squares).square())

    def _blocks(self, footprint: int) -> Iterator[tuple[int, int]]:
        """Ranges of samples of about equal size that fit the cache."""
        count = max(1, min(self.samples, -(-self.samples * footprint // BLOCK)))
        size = -(-self.samples // count)
        for start in range(0, self.samples, size):
            yield start, min(start + size, self.samples)
