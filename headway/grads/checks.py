"""The check that every score rests on: random weights over the samples of a batch.

Draw a weight r_b for each sample. The sum of r_b g_b, as the engine's forms give it, must be the gradient of the sum of
r_b L_b, as autograd gives it without the engine's help. If the two agree for random weights, every g_b is right, with
probability one. The check looks at all samples of a batch and does not depend on what it checks, so it sees rows that
are reordered inside the model, samples that depend on each other, uses of a parameter that nobody observed or that were
counted twice, outputs that a hook has changed, and losses with a term that belongs to no sample.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

from headway.errors import HeadwayError, VerificationError, warn
from headway.grads.check_schedule import Check, Schedule
from headway.grads.engine import Engine
from headway.grads.passes import Pass
from headway.grads.persample import widened
from headway.grads.registry import rule_for
from headway.grads.rounding import leaves_of, nodes

_NEAR = {torch.float64: 1e-10, torch.float32: 1e-4}
"""Two sums that are nearer than this, relative to the samples' own gradients, agree; 1e-2 for other dtypes."""

_TIMES = 8
"""Two sums that are not so near agree if they differ by at most so many times as autograd differs from itself ..."""

_TRIES = 3
"""... in one of so many tries."""


class Checker:
    """Draws the weights, asks autograd, and compares.

    Args:
        engine: the engine to be checked.
        when: see `Schedule`.
    """

    def __init__(self, engine: Engine, when: Check) -> None:
        self.schedule = Schedule(when)
        self._engine = engine
        self._random = torch.Generator().manual_seed(0 if engine.sharding is None else engine.sharding.ranks.rank)
        self._situation: Hashable = None
        self._asked: Autograd | None = None
        self._has_warned = False
        self._early = False
        engine.checking = self.schedule.expects()

    def take(self, samples: int) -> bool:
        """Count a batch after its forward pass, and tell whether it is to be checked."""
        self._situation = self._engine.uses.situation(self._engine.layouts, samples)
        self._asked = None
        return self.schedule.take(self._situation)

    def begin(self, losses: Tensor, parameters: Mapping[str, Tensor], weights: Tensor, reduced: bool) -> Tensor:
        """Before a pass that is to be checked and has to keep the losses' graph; see `Autograd`.

        Returns:
            A random weight for each sample [B], with which the pass is to add up its gradients.
        """
        random = self._draw(losses)
        self._asked = Autograd(self._engine, losses, parameters, weights, reduced, random)
        steps = (getattr(parameter, "_post_accumulate_grad_hooks", None) for parameter in parameters.values())
        if self._early or any(steps):
            self._early = True  # an optimizer may change the parameters during the pass
            self._asked.expected = self._ask(self._asked)
        return random

    def _draw(self, losses: Tensor) -> Tensor:
        """Weights of either sign, and of a size between 0.5 and 1.5."""
        sizes, signs = torch.rand(2, len(losses), generator=self._random)
        weights = (sizes + 0.5).where(signs < 0.5, -sizes - 0.5)
        return weights.to(losses.device, widened(losses.dtype))

    def _ask(self, asked: Autograd) -> dict[str, Tensor] | None:
        """What autograd gives, or None, with a warning, where the graph allows no further backward pass."""
        try:
            return asked.gradients(asked.random)
        except HeadwayError:
            raise
        except Exception as error:
            if "modified by an inplace operation" in str(error) and not self._early:
                self._early = True  # the next batch is asked before its pass
            else:
                self._warn(f"headway cannot check the scores of this model: {_explained(error)}")
            return None

    def _warn(self, message: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn(message)

    def finish(self, current: Pass) -> None:
        """After a pass: hold its weighted sums against those of autograd; if they are not finite, try the next batch.

        Raises:
            VerificationError: they differ by more than rounding.
        """
        asked, self._asked = self._asked, None
        if asked is not None:
            early = self._early
            asked.expected = asked.expected or self._ask(asked)
            if asked.expected is None:
                self._engine.layouts.settle(confirmed=False)
                self.schedule.done(self._situation, compared=early == self._early)  # else the next batch may do better
            else:
                self._compare(current, asked, asked.expected)
        self._engine.checking = self.schedule.expects()

    def _compare(self, current: Pass, asked: Autograd, expected: Mapping[str, Tensor]) -> None:
        hidden = current.totals.keys() - expected.keys() if asked.reduced else ()
        if hidden:
            self._warn(f"headway cannot check all scores of this model: {_REENTRANT}")
        names = [name for name in current.plan if name in expected or (name in current.totals and name not in hidden)]
        rows = []
        for name in names:
            got, due = _both(current.totals.get(name), expected.get(name))
            own = current.squares[name].to(got).sqrt() if name in current.squares else got.new_zeros(())
            rows.append(torch.stack([_norm(got - due), _norm(got), _norm(due), own / asked.divisor]))
        lengths = self._lengths(rows)
        gap = dict(zip(names, lengths[:, 0].tolist(), strict=True))
        size = dict(zip(names, lengths[:, 1:].amax(1).tolist(), strict=True))
        finite = all(value < float("inf") for value in size.values())  # nor NaN
        if finite:
            near = {name: _NEAR.get(asked.precision(name), 1e-2) for name in names}
            far = [name for name in names if gap[name] > near[name] * size[name]]
            failing = self._beyond_rounding(far, gap, size, asked, expected)
            if failing:
                raise self._error({name: gap[name] / max(size[name], 1e-300) for name in failing})
            self._engine.layouts.settle(confirmed=True)
        else:
            self._engine.layouts.forget_tried()
        self.schedule.done(self._situation, finite)

    def _beyond_rounding(
        self,
        far: list[str],
        gap: Mapping[str, float],
        size: Mapping[str, float],
        asked: Autograd,
        expected: Mapping[str, Tensor],
    ) -> list[str]:
        """Those whose sums differ by more than autograd differs from itself.

        Autograd is linear in the weights: what it gives for r, for other weights s, and for r + s, differs by rounding
        alone, whatever the losses are, in whichever precision. Of a parameter with few numbers that difference may be
        small by chance; it counts at least as much as that of all parameters together does, number by number.
        """
        for _ in range(_TRIES if far else 0):
            try:
                noise = self._noise(asked, expected)
            except RuntimeError:  # parameters have changed since
                return [name for name in far if gap[name] > 1e-3 * size[name]]
            numbers = {name: self._engine.parameters[name].numel() for name in noise}
            whole = sum(value**2 for value in noise.values()) / max(1, sum(numbers.values()))
            least = {name: (whole * numbers[name]) ** 0.5 for name in noise}
            far = [n for n in far if n not in noise or not gap[n] <= _TIMES * max(noise[n], least[n])]
        return far

    def _noise(self, asked: Autograd, expected: Mapping[str, Tensor]) -> dict[str, float]:
        """How far autograd's gradients for r, for other weights, and for both together are from adding up."""
        other = self._draw(asked.losses)
        second, both = asked.gradients(other), asked.gradients(asked.random + other)
        names = [name for name in expected if name in second and name in both]
        gaps = []
        for name in names:
            total, part = _both(both[name], second[name])
            _, rest = _both(None, expected[name])
            gaps.append(_norm(total - part - rest).view(1))
        return dict(zip(names, self._lengths(gaps)[:, 0].tolist(), strict=True))

    def _lengths(self, rows: Sequence[Tensor]) -> Tensor:
        """Lengths of vectors, one row for each parameter, on the host; of sharded vectors, over all ranks."""
        if not rows:
            return torch.zeros(0, 2)
        own = torch.stack([row.double().cpu() for row in rows])
        return own if self._engine.sharding is None else self._engine.sharding.lengths(own)

    def _error(self, failing: Mapping[str, float]) -> VerificationError:
        """The error, from the relative difference of each parameter that fails."""
        name, ratio = max(failing.items(), key=lambda item: item[1])
        others = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
        tried = self._engine.layouts.forget_tried()
        own_rules = sorted({kind for failed in failing for kind in self._registered(failed)})
        where = "say where they are with layout=, or with headway.segments inside the model"
        apart = f"rows of a sample that do not stand together, where layout={tried} was tried: {where}"
        causes = [
            *(f"the rule that was registered for {kind} is wrong" for kind in own_rules),
            *([apart] if tried else []),
            "the losses of different samples depend on each other (batch statistics, contrastive terms), or contain a "
            "penalty on the parameters: score losses that look at one sample each, and give the rest to "
            "backward(losses, aux=)",
            f"a shape can be read in two ways (as many positions as samples), or samples change their places inside "
            f"the model: {where}",
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


@dataclass
class Autograd:
    """The gradient of weighted sums of some losses, without any part of the engine.

    Attributes:
        engine: the engine, which ignores the passes.
        losses: losses [B]; their graph stays.
        parameters: the parameters by name.
        weights: the gradient at each loss in the pass that is checked [B].
        reduced: whether gradients are averaged over ranks as they arrive in `.grad`.
        random: the random weights [B].
        expected: the gradients for these, once they are known.
    """

    engine: Engine
    losses: Tensor
    parameters: Mapping[str, Tensor]
    weights: Tensor
    reduced: bool
    random: Tensor
    expected: dict[str, Tensor] | None = None

    @property
    def divisor(self) -> float:
        """What the sum of a sharded gradient over ranks is divided by."""
        return 1.0 if self.engine.sharding is None else self.engine.sharding.divisor

    def precision(self, name: str) -> torch.dtype:
        """The least precise of a parameter, its gradient and the losses."""
        gradient = (self.expected or {}).get(name, self.losses)
        dtypes = self.losses.dtype, gradient.dtype, self.engine.parameters[name].dtype
        return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)

    def gradients(self, random: Tensor) -> dict[str, Tensor]:
        """The gradients for random weights [B] by name; parameters that have none are left out.

        A reentrant checkpoint hides its parameters from `torch.autograd.grad`, or refuses it; it is asked by a backward
        pass that fills `.grad`, unless that would involve other ranks.
        """
        losses, wanted = self.losses, list(self.parameters.values())
        weights = (self.weights * random).to(losses.dtype)
        found: Sequence[Tensor | None]
        graph = list(nodes(losses))
        leaves = [*self.engine.model.parameters(), *leaves_of(losses), *(p for n in graph for p in _hidden_leaves(n))]
        devices = [losses.device] if losses.device.type == "cuda" else []
        with (
            self.engine.deaf(),
            torch.random.fork_rng(devices, device_type="cuda"),
            _grads_set_aside(list({id(leaf): leaf for leaf in leaves}.values())),
        ):
            if self.engine.sharding is not None:  # its whole parameters are leaves of the graph, and have no `.grad`
                due = self.engine.sharding.gradients(losses, weights)
                return {name: due[name] for name in self.parameters if name in due}
            try:
                found = torch.autograd.grad(losses, wanted, weights, retain_graph=True, allow_unused=True)
                hidden = any(grad is None for grad in found) and any(map(_runs_a_backward, graph))
            except RuntimeError as error:
                hidden = "use_reentrant" in str(error)
                if not hidden or self.reduced:
                    raise
            if hidden and not self.reduced:
                for parameter in wanted:
                    parameter.grad = None
                losses.backward(weights, retain_graph=True)
                found = [parameter.grad for parameter in wanted]
        return {name: grad.to_dense() for name, grad in zip(self.parameters, found, strict=True) if grad is not None}


_norm = torch.linalg.vector_norm


def _both(have: Tensor | None, want: Tensor | None) -> tuple[Tensor, Tensor]:
    """Two sums, flat and of one dtype; one that is missing is zero."""
    like = want if want is not None else have
    assert like is not None
    wide = widened(like.dtype)
    zeros = like.new_zeros(like.numel(), dtype=wide) if have is None or want is None else like
    got, due = (zeros if one is None else one.to(wide).reshape(-1) for one in (have, want))
    return got, due


def _runs_a_backward(node: Any) -> bool:
    """Whether a node is somebody's function, in which a backward pass of its own may hide."""
    if not isinstance(node, BackwardCFunction):
        return False
    module = str(getattr(node, "_forward_cls", node).__module__)
    return not module.startswith(("headway.", "torch.utils.hooks"))


def _hidden_leaves(node: Any) -> Iterator[Tensor]:
    """Tensors that a reentrant checkpoint uses besides its arguments, as far as its function shows them."""
    function = getattr(node, "run_function", None)
    cells = inspect.getclosurevars(function).nonlocals.values() if inspect.isfunction(function) else ()
    for part in (function, getattr(function, "__self__", None), getattr(function, "func", None), *cells):
        if isinstance(part, nn.Module):
            yield from part.parameters()
        elif isinstance(part, Tensor) and part.is_leaf:
            yield part


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


_REENTRANT = (
    "checkpoint(use_reentrant=True) inside DistributedDataParallel allows one backward pass; pass use_reentrant=False"
)


def _explained(error: Exception) -> str:
    if "use_reentrant" in str(error):
        return _REENTRANT
    return f"its graph allows only one backward pass ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
