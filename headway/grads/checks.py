"""The check that every score rests on: random weights over the samples of a batch.

Draw a weight r_b for each sample. The sum of r_b g_b, as the engine's forms give it, must be the gradient of the sum of
r_b L_b, as autograd gives it without the engine's help. If the two agree for random weights, every g_b is right, with
probability one. The check looks at all samples of a batch and does not depend on what it checks, so it sees rows that
are reordered inside the model, samples that depend on each other, uses of a parameter that nobody observed or that were
counted twice, outputs that a hook has changed, and losses with a term that belongs to no sample.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from headway.errors import LossError, VerificationError, warn
from headway.grads.engine import Engine
from headway.grads.passes import Pass
from headway.grads.registry import rule_for
from headway.grads.rounding import least_precision, leaves_of, nodes, noise

Check = Literal["auto", "always", "first", "never"] | int
"""Which batches are checked: see `Schedule`."""

_RARELY = 1024
"""After so many batches, each that is a multiple of it is checked."""

_PATIENCE = 64
"""After so many batches in a row that are due and cannot be checked, for NaN or infinity, the user is told."""

_TOLERANCES = {torch.float64: 1e-7, torch.float32: 1e-3}
"""How far the two sums may be apart, relative to the samples' own gradients, by the least precision that takes part."""

_LOW_TOLERANCE = 5e-2
"""The same for less than float32."""


class Schedule:
    """Which batches are checked.

    Args:
        when: "auto" is the first batch of every situation, and batches 1, 2, 4, ..., 1024, 2048, 3072, ... of the meter
            and of each situation; "always" is every batch, a number k every k-th and the first of every situation,
            "first" only the latter, "never" none.

    Raises:
        LossError: none of these.
    """

    def __init__(self, when: Check) -> None:
        """Begin before the first batch."""
        names = get_args(get_args(Check)[0])
        if when not in names and (isinstance(when, (bool, str)) or not isinstance(when, int) or when < 1):
            known = ", ".join(map(repr, names))
            raise LossError(f"expected check to be one of {known}, or a number from 1, got {when!r}")
        self.when = when
        self.batches = 0
        self._seen: dict[Hashable, int] = {}
        self._postponed = 0

    def expects(self) -> bool:
        """Whether the next batch will be checked whatever its situation."""
        return self.when != "never" and (self._postponed > 0 or self._falls(self.batches + 1))

    def take(self, situation: Hashable) -> bool:
        """Count a batch, and tell whether it is to be checked."""
        expected = self.expects()
        self.batches += 1
        self._seen[situation] = seen = self._seen.get(situation, 0) + 1
        return self.when != "never" and (expected or seen == 1 or self._falls(seen))

    def _falls(self, count: int) -> bool:
        if self.when == "always":
            return True
        if self.when == "auto":
            return count % _RARELY == 0 or (count < _RARELY and count & (count - 1) == 0)
        return isinstance(self.when, int) and count % self.when == 0

    def done(self, situation: Hashable, compared: bool) -> None:
        """Note whether a check that was due could be made; if not, the next batch is checked instead."""
        if compared:
            self._postponed = 0
            return
        self._postponed += 1
        self._seen[situation] -= 1
        if self._postponed == _PATIENCE:
            warn(
                f"the scores of {_PATIENCE} batches in a row could not be checked, because their gradients are NaN or "
                f"infinite"
            )


class Checker:
    """Draws the weights, asks autograd, and compares.

    Args:
        engine: the engine to be checked.
        when: see `Schedule`.
    """

    def __init__(self, engine: Engine, when: Check) -> None:
        self.schedule = Schedule(when)
        self._engine = engine
        self._random = torch.Generator().manual_seed(0)
        self._situation: Hashable = None
        self._expected: dict[str, Tensor] = {}
        self._problem: str | None = None
        self._reduced = False
        self._has_warned = False
        engine.checking = self.schedule.expects()

    def begin(self, losses: Tensor, parameters: Mapping[str, Tensor], weights: Tensor, reduced: bool) -> Tensor | None:
        """If the batch is to be checked, find out what autograd gives.

        Args:
            losses: losses [B]; their graph stays.
            parameters: the scored parameters by name.
            weights: the gradient at each loss in the pass that is checked [B].
            reduced: whether gradients are averaged over ranks as they arrive in `.grad`.

        Returns:
            A random weight for each sample [B], with which the pass is to add up its gradients, or None.
        """
        self._situation, self._expected, self._problem = self._engine.circumstances(len(losses)), {}, None
        self._reduced = reduced
        if not self.schedule.take(self._situation):
            return None
        random = self._draw(losses)
        try:
            self._expected = self._by_autograd(losses, parameters, (weights * random).to(losses.dtype), reduced)
        except RuntimeError as error:  # the pass itself may fail too, with a better message
            self._problem = _explained(str(error))
            return None
        return random

    def _draw(self, losses: Tensor) -> Tensor:
        """Weights of either sign, and of a size between 0.5 and 1.5."""
        sizes, signs = torch.rand(2, len(losses), generator=self._random)
        weights = (sizes + 0.5).where(signs < 0.5, -sizes - 0.5)
        return weights.to(losses.device, torch.promote_types(losses.dtype, torch.float32))

    def _by_autograd(
        self, losses: Tensor, parameters: Mapping[str, Tensor], weights: Tensor, reduced: bool
    ) -> dict[str, Tensor]:
        """The gradient of the weighted sum of the losses, without any part of the engine.

        Parameters that have none are left out. A reentrant checkpoint hides its parameters from `torch.autograd.grad`,
        or refuses it; it is asked by a backward pass that fills `.grad`, unless that would involve other ranks.
        """
        wanted = list(parameters.values())
        found: Sequence[Tensor | None]
        leaves = {id(p): p for p in [*self._engine.model.parameters(), *leaves_of(losses)]}
        with self._engine.deaf(), _grads_set_aside(list(leaves.values())):
            try:
                found = torch.autograd.grad(losses, wanted, weights, retain_graph=True, allow_unused=True)
                hidden = any(grad is None for grad in found) and any(map(_runs_a_backward, nodes(losses)))
            except RuntimeError as error:
                hidden = "use_reentrant" in str(error)
                if not hidden or reduced:
                    raise
            if hidden and not reduced:
                for parameter in wanted:
                    parameter.grad = None
                losses.backward(weights, retain_graph=True)
                found = [parameter.grad for parameter in wanted]
        return {name: grad.to_dense() for name, grad in zip(parameters, found, strict=True) if grad is not None}

    def finish(self, current: Pass, losses: Tensor) -> None:
        """Hold the weighted sums of a pass against those of autograd; if one is NaN or infinite, try the next batch.

        Args:
            current: the finished pass.
            losses: the losses, for the precision of their graph.

        Raises:
            VerificationError: they differ by more than rounding.
        """
        expected, self._expected = self._expected, {}
        if current.check is not None and self._reduced and not current.totals.keys() <= expected.keys():
            self._problem = _explained("use_reentrant")
        if self._problem is not None and not self._has_warned:
            self._has_warned = True
            warn(f"headway cannot check all scores of this model: {self._problem}")
        if current.check is not None:
            self._compare(current, expected, losses)
        self._engine.checking = self.schedule.expects()

    def _compare(self, current: Pass, expected: Mapping[str, Tensor], losses: Tensor) -> None:
        gaps, sizes = {}, {}
        norm = torch.linalg.vector_norm
        names = [name for name in current.plan if name in expected or (name in current.totals and not self._reduced)]
        for name in names:
            have, want = current.totals.get(name), expected.get(name)
            like = want if want is not None else have
            assert like is not None
            wide = torch.promote_types(like.dtype, torch.float32)
            got, due = (
                like.new_zeros(like.numel(), dtype=wide) if x is None else x.to(wide).reshape(-1) for x in (have, want)
            )
            own = current.squares[name].to(got).sqrt() if name in current.squares else got.new_zeros(())
            gaps[name] = norm(got - due)
            sizes[name] = torch.stack([norm(got), norm(due), own]).max()
        if not names:
            return
        numbers = torch.stack([value.to("cpu") for value in [*gaps.values(), *sizes.values()]]).tolist()
        gap, size = (dict(zip(names, part, strict=True)) for part in (numbers[: len(names)], numbers[len(names) :]))
        whole = sum(value**2 for value in size.values()) ** 0.5
        finite = whole < float("inf")  # nor NaN
        self.schedule.done(self._situation, finite)
        if not finite:
            return
        failing = self._failing(gap, size, whole, gaps[names[0]].dtype)
        if failing:
            failing = self._failing(gap, size, whole, least_precision(losses, self._engine.dtypes()))
        if failing:
            raise self._error(failing, gap, size)

    def _failing(
        self, gap: Mapping[str, float], size: Mapping[str, float], whole: float, dtype: torch.dtype
    ) -> list[str]:
        tolerance = _TOLERANCES.get(dtype, _LOW_TOLERANCE)
        return [name for name in gap if gap[name] > max(tolerance * size[name], noise(dtype) * whole)]

    def _error(self, failing: Sequence[str], gap: Mapping[str, float], size: Mapping[str, float]) -> VerificationError:
        name = max(failing, key=lambda name: gap[name] / max(size[name], 1e-300))
        ratio = gap[name] / max(size[name], 1e-300)
        others = f" ({len(failing)} parameters in all)" if len(failing) > 1 else ""
        own_rules = sorted({kind for failed in failing for kind in self._registered(failed)})
        causes = [
            *(f"the rule that was registered for {kind} is wrong" for kind in own_rules),
            "the losses of different samples depend on each other (batch statistics, contrastive terms, a penalty that "
            "belongs to no sample)",
            "a shape can be read in two ways (as many positions as samples), or samples change their places inside the "
            "model: say where they are with layout=",
            "the parameter is also used outside the model's forward pass, or by a function that headway cannot follow: "
            "use it through its module",
            "a hook changes what its module gives",
        ]
        listed = "; ".join(f"({number}) {cause}" for number, cause in enumerate(causes, 1))
        return VerificationError(
            f"{name}{others}: expected per-sample gradients that add up to autograd's under random weights, got a "
            f"relative difference of {ratio:.2g} in batch {self.schedule.batches}. Likely causes, the likeliest first: "
            f"{listed}. Otherwise leave the parameter out with where="
        )

    def _registered(self, parameter: str) -> list[str]:
        """The type of the module that owns a parameter, if a user has registered the rule for it."""
        owner = self._engine.model.get_submodule(parameter.rpartition(".")[0])
        rule = rule_for(owner)
        return [] if rule is None or rule.is_built_in else [type(owner).__name__]


def _runs_a_backward(node: Any) -> bool:
    """Whether a node is somebody's function, in which a backward pass of its own may hide."""
    return isinstance(node, BackwardCFunction) and not str(getattr(node, "_forward_cls", node).__module__).startswith(
        "headway."
    )


@contextmanager
def _grads_set_aside(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Let a backward pass leave `.grad` as it was, and run without the hooks on the parameters.

    Such hooks may change gradients, or be an optimizer that takes its step as they arrive.
    """
    grads = [parameter.grad for parameter in parameters]
    hooks = [
        (found, dict(found))
        for parameter in parameters
        for found in (parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None))
        if found
    ]
    for parameter in parameters:
        parameter.grad = None
    for found, _ in hooks:
        found.clear()
    try:
        yield
    finally:
        for found, kept in hooks:
            found.update(kept)
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad


def _explained(reason: str) -> str:
    if "use_reentrant" in reason:
        return (
            "checkpoint(use_reentrant=True) inside DistributedDataParallel allows one backward pass; pass "
            "use_reentrant=False"
        )
    return f"its graph allows only one backward pass ({reason.splitlines()[0]})"
