"""Modules whose type has a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from headway.errors import LayoutError, RuleError
from headway.grads import compiled
from headway.grads.direct import Tracked, is_tracked
from headway.grads.fallback import Surroundings, close
from headway.grads.folding import by_sample
from headway.grads.layout import samples_first
from headway.grads.observe import observe, observe_and_train
from headway.grads.passes import Contribution, Pass
from headway.grads.persample import Dense, PerSample, Total
from headway.grads.registry import Inputs, Rule
from headway.grads.sites import Call, OwnerSite, is_range, own_slots

if TYPE_CHECKING:
    from headway.grads.engine import Engine


class RuleSite(OwnerSite):
    """A module whose type has a rule."""

    def __init__(self, engine: Engine, path: str, module: nn.Module, own: Mapping[str, str], rule: Rule) -> None:
        """Decide whether the parameters' gradients can come from the per-sample gradients."""
        super().__init__(engine, path, module, own)
        self.rule = rule
        self._trained = {name: engine.parameters[name] for name in self.own.values()}
        self._may_train = (
            engine.simultaneous
            and rule.simultaneous is not None
            and "weight" in self.own
            and not any(engine.uses.is_shared(name) for name in self._trained)
        )
        self._trains = False
        self._aliases: dict[str, Tensor] = {}
        self._number = compiled.register(self)
        self._in_graph = False  # the latest call was one inside torch.compile

    def prepare(self, call: Call) -> None:
        """Hide the parameters from autograd if their gradients will come from the per-sample gradients."""
        slots = own_slots(self.module)
        at_home = all(slots[local] is self._trained[name] for local, name in self.own.items())
        self._trains = self._may_train and at_home and self._wants_to_train(self.inputs(call.args, call.kwargs))
        if self._trains:
            for local, name in self.own.items():
                call.replaced.append((slots, local, self._trained[name]))
                slots[local] = self._without_graph(name)

    def _without_graph(self, name: str) -> Tensor:
        """A parameter as autograd does not see it; made again if the parameter's memory was exchanged."""
        parameter, alias = self._trained[name], self._aliases.get(name)
        if alias is None or not _same_memory(alias, parameter):
            alias = self._aliases[name] = parameter.detach()
        return alias

    def _wants_to_train(self, inputs: Inputs) -> bool:
        return (
            self.rule.simultaneous is not None
            and bool(inputs)
            and not is_tracked(inputs)
            and self.rule.simultaneous(inputs)
            and not self._is_shared(inputs)
        )

    def _is_shared(self, inputs: Inputs) -> bool:
        """Whether a call sees no samples; a module that fixes where they are does so only if it is said."""
        if self.rule.samples_first:
            return self.engine.layouts.declared(self.path) == "shared"
        return self.sees_no_samples(inputs)

    def listen(self, call: Call, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        """See `OwnerSite.listen`."""
        slots = own_slots(self.module)
        at_home = (slots[k] is self._trained[name] or isinstance(slots[k], Tracked) for k, name in self.own.items())
        if not all(at_home):
            return output  # somebody runs the module on other tensors (functional_call)
        inputs = self.inputs(args, kwargs)
        self._in_graph = False
        if not self._trains and self._is_shared(inputs):
            shared: Tensor = self.share(call, output)
            return shared
        self.engine.count_use(self.names, self.path, [output])
        if self._trains:
            kept = output.detach().clone() if self.engine.checking else None
            trained = TrainedCall(self, Surroundings.of(output.device, random=False), kept)
            return observe_and_train(trained, output, list(self._trained.values()), inputs)
        return observe(self, [output], inputs)[0] if output.requires_grad else output

    def listen_compiled(self, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        """See `OwnerSite.listen_compiled`."""
        saved = [tensor.detach() for tensor in self.inputs(args, kwargs)]
        result: Tensor = torch.ops.headway.observe(output, saved, self._number)
        return result

    def called(self, output: Tensor) -> None:
        """See `CompiledListener.called`."""
        self._in_graph = True
        self.engine.count_use(self.names, self.path, [output])

    def contribution(self, saved: Inputs, grad: Tensor, samples: int) -> Contribution:
        """Describe a call's share of the gradients, samples first."""
        layouts = self.engine.layouts
        layouts.try_flat(self.path, grad.shape, samples)
        if self.rule.samples_first or layouts.is_flat(self.path):
            each = layouts.require_rows(self.path, grad.shape, samples)
            return by_sample(RuleContribution(self, saved, grad), each, self._trained)
        if self._are_positions(saved[0], samples):  # where samples are known, eager calls were tracked instead
            raise self._same_positions(saved[0], samples)
        layout = layouts.find(self.path, grad, samples)
        if layout == "samples-first":
            return RuleContribution(self, saved, grad)
        inputs = tuple(samples_first(tensor, layout) for tensor in saved)
        return RuleContribution(self, inputs, samples_first(grad, layout))

    def _same_positions(self, first: Tensor, samples: int) -> LayoutError:
        """What to say where all samples are looked up at the same positions, which could not be followed."""
        other = f"; if they are not positions, pass layout={{{self.path!r}: 'samples-first'}}"
        if not self._in_graph:
            return LayoutError(
                f"{self.path}: expected inputs that belong to samples, got 0, 1, ..., {first.shape[-1] - 1}; if these "
                f"are positions, the same for all samples, pass layout={{{self.path!r}: 'shared'}}{other}"
            )
        return LayoutError(
            f"{self.path}: expected inputs that belong to samples, got the same positions for all of them "
            f"inside torch.compile, where headway cannot follow them; leave its parameters out with where=, "
            f"or look them up for each sample, with indices [{samples}, {first.shape[-1]}]"
            f"{other if first.dim() == 1 else ''}"
        )

    def _are_positions(self, first: Tensor, samples: int) -> bool:
        """Whether indices [T], or [1, T] in a compiled graph, are 0, 1, 2, ... for all samples at once."""
        declared = self.engine.layouts.declared(self.path)
        if declared is not None:
            return declared == "shared"
        if self._in_graph and first.dim() == 2 and len(first) == 1 and samples > 1:
            first = first[0]
        return first.dim() == 1 and len(first) > 1 and not first.is_floating_point() and is_range(first)

    def check_forms(self, grads: Mapping[str, PerSample | Tensor], samples: int) -> None:
        """Refuse what a user's rule gave if it has no gradient of a parameter, or one of another shape."""
        kind = type(self.module).__name__
        for local, name in self.own.items():
            expected = [samples, *self._trained[name].shape]
            if local not in grads:
                raise RuleError(
                    f"{self.path}: expected the rule for {kind} to give gradients of {local!r}, got {sorted(grads)}"
                )
            form = grads[local]
            if isinstance(form, Tensor) and list(form.shape) != expected:
                raise RuleError(
                    f"{self.path}: expected the rule for {kind} to give gradients of {local!r} with shape {expected}, "
                    f"samples first, got {list(form.shape)}"
                )
            if not isinstance(form, Tensor) and form.total().numel() != self._trained[name].numel():
                raise RuleError(
                    f"{self.path}: expected the rule for {kind} to give gradients of {local!r} with "
                    f"{self._trained[name].numel()} numbers each, got a {type(form).__name__} of {form.total().numel()}"
                )

    def collect(self, current: Pass, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        current.add(self.contribution(tuple(saved), grads[0], current.samples))

    def collect_and_train(self, saved: Inputs, grad: Tensor) -> list[Tensor]:
        """Reduce the per-sample gradients of a call and add them up to those of the parameters."""
        current = self.engine.current
        assert current is not None
        sums = {name: Total() for name in self._trained}
        if current.add(self.contribution(saved, grad, current.samples), sums):
            totals = {name: one.value for name, one in sums.items()}
        else:
            gradients = RuleContribution(self, saved, grad).block(0, len(grad))
            totals = {name: gradients[name].total() for name in self._trained}
        return [_as(totals[name], p) for name, p in self._trained.items()]

    def plain_gradients(self, saved: Inputs, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """A call's output and the gradients of the parameters, by autograd through the module's own forward."""
        slots = own_slots(self.module)
        before = {local: slots[local] for local in self.own}
        leaves = {local: self._trained[name].detach().requires_grad_() for local, name in self.own.items()}
        try:
            slots.update(leaves)
            with self.engine.paused(), torch.enable_grad():
                output = self.module.forward(*saved)
        finally:
            slots.update(before)
        gradients = torch.autograd.grad(
            output, list(leaves.values()), grad.to(output.dtype), allow_unused=True, materialize_grads=True
        )
        return output.detach(), list(gradients)


def _same_memory(alias: Tensor, parameter: Tensor) -> bool:
    """Whether two tensors are views of the same numbers."""
    return (
        alias.untyped_storage()._cdata == parameter.untyped_storage()._cdata
        and alias.dtype == parameter.dtype
        and alias.storage_offset() == parameter.storage_offset()
        and alias.shape == parameter.shape
        and alias.stride() == parameter.stride()
    )


def _as(total: Tensor | None, parameter: Tensor) -> Tensor:
    """A flat sum as a gradient of a parameter."""
    assert total is not None
    shaped = total if total.shape == parameter.shape else total.view(parameter.shape)
    return shaped if shaped.dtype == parameter.dtype else shaped.to(parameter.dtype)


@dataclass
class TrainedCall:
    """One call of a module whose parameters get their gradients from the per-sample gradients.

    Attributes:
        site: the module.
        surroundings: autocast as it was.
        kept: the call's output, where it will be compared.
    """

    site: RuleSite
    surroundings: Surroundings
    kept: Tensor | None

    def collect_and_train(self, saved: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
        """See `TrainingListener.collect_and_train`; in a backward pass of somebody else, autograd does it."""
        site = self.site
        if site.engine.collecting is not None:
            return site.collect_and_train(tuple(saved), grad)
        with self.surroundings.restored():
            output, gradients = site.plain_gradients(tuple(saved), grad)
        if self.kept is not None and not close(output, self.kept):
            raise RuleError(
                f"{site.path}: expected the output of {type(site.module).__name__}.forward, got another one; a forward "
                f"hook that was registered for all modules, or with prepend=True, changes it: register it on the "
                f"module, without prepend"
            )
        return gradients


@dataclass
class RuleContribution:
    """One call of a module with a rule."""

    site: RuleSite
    inputs: Inputs
    grad_output: Tensor

    def __post_init__(self) -> None:
        """Ask the rule how much a sample needs."""
        site = self.site
        self.params = site.names
        self.footprint = site.rule.footprint(site.module, self.inputs, self.grad_output)
        formed = site.rule.simultaneous is None or "weight" not in site.own or not site.rule.simultaneous(self.inputs)
        if site.engine.has_kernels and not formed:
            self.footprint -= cast(Tensor, site.module.weight).numel()

    def block(self, start: int, stop: int) -> Mapping[str, PerSample]:
        """See `Contribution.block`."""
        inputs, grad_output = self.inputs, self.grad_output
        if stop - start < len(grad_output):
            inputs, grad_output = tuple(x[start:stop] for x in inputs), grad_output[start:stop]
        grads = self.site.rule.grads(self.site.module, inputs, grad_output)
        if not self.site.rule.is_built_in:
            self.site.check_forms(grads, stop - start)
        forms: dict[str, PerSample] = {}
        for local, name in self.site.own.items():
            form = grads[local]
            forms[name] = Dense(form) if isinstance(form, Tensor) else form
        return forms
