"""Modules whose type has a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from headway.errors import LayoutError, RuleError
from headway.grads import compiled
from headway.grads.direct import Tracked, is_tracked
from headway.grads.fallback import Surroundings, close
from headway.grads.observe import observe, observe_and_train
from headway.grads.passes import Contribution, Pass
from headway.grads.persample import Dense, PerSample, Total
from headway.grads.registry import Inputs, Rule
from headway.grads.sites import Call, OwnerSite, Slots, is_range

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
        slots: Slots = self.module._parameters
        at_home = all(slots[local] is self._trained[name] for local, name in self.own.items())
        self._trains = self._may_train and at_home and self._wants_to_train(self.inputs(call.args, call.kwargs))
        if self._trains:
            for local, name in self.own.items():
                call.replaced.append((slots, local, self._trained[name]))
                slots[local] = self._without_graph(name)

    def _without_graph(self, name: str) -> Tensor:
        """A parameter as autograd does not see it; made again if the parameter's memory was exchanged."""
        parameter, alias = self._trained[name], self._aliases.get(name)
        if alias is None or _memory(alias) != _memory(parameter):
            alias = self._aliases[name] = parameter.detach()
        return alias

    def _wants_to_train(self, inputs: Inputs) -> bool:
        if self.rule.simultaneous is None or not inputs or is_tracked(inputs):
            return False
        return self.rule.simultaneous(inputs) and not self._is_shared(inputs)

    def _is_shared(self, inputs: Inputs) -> bool:
        """Whether a call sees no samples; a module that fixes where they are does so only if it is said."""
        if self.rule.samples_first:
            return self.engine.layouts.declared(self.path) == "shared"
        return self.sees_no_samples(inputs)

    def listen(self, call: Call, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        """See `OwnerSite.listen`."""
        slots: Slots = self.module._parameters
        at_home = (slots[k] is self._trained[name] or isinstance(slots[k], Tracked) for k, name in self.own.items())
        if not all(at_home):
            return output  # somebody runs the module on other tensors (functional_call)
        inputs = self.inputs(args, kwargs)
        self._in_graph = False
        if not self._trains and self._is_shared(inputs):
            return self.share(call, output)
        self.engine.count_use(self.names, self.path, [output])
        if self._trains:
            kept = output.detach().clone() if self.engine.checking else None
            trained = TrainedCall(self, Surroundings.of(output.device, random=False), kept)
            return observe_and_train(trained, output, list(self._trained.values()), inputs)
        return observe(self, [output], inputs)[0] if output.requires_grad else output

    def listen_compiled(self, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        """See `OwnerSite.listen_compiled`."""
        saved = [tensor.detach() for tensor in self.inputs(args, kwargs)]
        return torch.ops.headway.observe(output, saved, self._number)

    def called(self, output: Tensor) -> None:
        """The module has run forward inside torch.compile."""
        self._in_graph = True
        self.engine.count_use(self.names, self.path, [output])

    def contribution(self, saved: Inputs, grad: Tensor, samples: int) -> Contribution:
        """Describe a call's share of the gradients, samples first."""
        layouts = self.engine.layouts
        layouts.try_flat(self.path, grad.shape, samples)
        if self.rule.samples_first or layouts.is_flat(self.path):
            return self.of_rows(saved, grad, samples, self.size)
        self._refuse_positions(saved[0], samples)  # where samples are known, eager calls were tracked instead
        if layouts.find(self.path, grad, samples) == "samples-first":
            return self._of_samples(saved, grad)
        return self._of_samples(tuple(tensor.transpose(0, 1) for tensor in saved), grad.transpose(0, 1))

    def of_rows(self, saved: Inputs, grad: Tensor, samples: int, size: int) -> Contribution:
        """A call's share where the rows of a sample stand together; a gradient that is formed has `size` numbers."""
        each = self.engine.layouts.require_rows(self.path, grad.shape, samples)
        return self._of_samples(saved, grad).folded(each, size)

    def _of_samples(self, inputs: Inputs, grad_output: Tensor) -> Contribution:
        """A call's share with one row, samples first, for each sample."""
        rule, module = self.rule, self.module
        footprint = rule.footprint(module, inputs, grad_output)
        if self.engine.has_kernels and "weight" in self.own and rule.simultaneous and rule.simultaneous(inputs):
            footprint -= cast(Tensor, module.weight).numel()  # it is not formed

        def block(start: int, stop: int) -> Mapping[str, PerSample]:
            own, grad = inputs, grad_output
            if stop - start < len(grad):
                own, grad = tuple(x[start:stop] for x in own), grad[start:stop]
            grads = rule.grads(module, own, grad)
            if not rule.is_built_in:
                self._check_forms(grads, stop - start)
            forms = ((name, grads[local]) for local, name in self.own.items())
            return {name: Dense(form) if isinstance(form, Tensor) else form for name, form in forms}

        return Contribution(self.names, footprint, block)

    def _refuse_positions(self, first: Tensor, samples: int) -> None:
        """Refuse indices [T], or [1, T] in a compiled graph, that are 0, 1, 2, ... for all samples at once."""
        declared, width = self.engine.layouts.declared(self.path), first.shape[-1] if first.dim() else 0
        if declared not in (None, "shared"):
            return
        row = first[0] if self._in_graph and first.dim() == 2 and len(first) == 1 and samples > 1 else first
        counts = row.dim() == 1 and len(row) > 1 and not row.is_floating_point() and is_range(row)
        if declared is None and not counts:
            return
        way_out = f"if these are positions, the same for all samples, pass layout={{{self.path!r}: 'shared'}}"
        if self._in_graph:
            way_out = (
                f"inside torch.compile headway cannot follow them: leave its parameters out with where=, or look them "
                f"up for each sample, with indices [{samples}, {width}]"
            )
        if first.dim() == 1:
            way_out += f"; if they are not positions, pass layout={{{self.path!r}: 'samples-first'}}"
        raise LayoutError(
            f"{self.path}: expected inputs that belong to samples, got 0, 1, ..., {width - 1} for all; {way_out}"
        )

    def _check_forms(self, grads: Mapping[str, PerSample | Tensor], samples: int) -> None:
        """Refuse what a user's rule gave if it has no gradient of a parameter, or one of another shape."""
        for local, name in self.own.items():
            wanted = f"{self.path}: expected the rule for {type(self.module).__name__} to give gradients of {local!r}"
            if local not in grads:
                raise RuleError(f"{wanted}, got {sorted(grads)}")
            form, shape, size = grads[local], [samples, *self._trained[name].shape], self._trained[name].numel()
            if isinstance(form, Tensor) and list(form.shape) != shape:
                raise RuleError(f"{wanted} with shape {shape}, samples first, got {list(form.shape)}")
            if not isinstance(form, Tensor) and (got := form.total().numel()) != size:
                raise RuleError(f"{wanted} with {size} numbers each, got a {type(form).__name__} of {got}")

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
            gradients = self._of_samples(saved, grad).block(0, len(grad))
            totals = {name: gradients[name].total() for name in self._trained}
        return [_as(totals[name], p) for name, p in self._trained.items()]

    def plain_gradients(self, saved: Inputs, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """A call's output and the gradients of the parameters, by autograd through the module's own forward."""
        slots: Slots = self.module._parameters
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


def _memory(tensor: Tensor) -> tuple[object, ...]:
    """Which numbers a tensor is a view of."""
    return tensor.untyped_storage()._cdata, tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()


def _as(total: Tensor | None, parameter: Tensor) -> Tensor:
    """A flat sum as a gradient of a parameter."""
    assert total is not None
    shaped = total if total.shape == parameter.shape else total.view(parameter.shape)
    return shaped if shaped.dtype == parameter.dtype else shaped.to(parameter.dtype)


class TrainedCall:
    """One call of a module whose parameters get their gradients from the per-sample gradients.

    Args:
        site: the module.
        surroundings: autocast as it was.
        kept: the call's output, where it will be compared.
    """

    def __init__(self, site: RuleSite, surroundings: Surroundings, kept: Tensor | None) -> None:
        self.engine, self.path, self.names = site.engine, site.path, site.names
        self._site, self._surroundings, self._kept = site, surroundings, kept

    def collect_and_train(self, saved: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
        """Take a pass's gradient at the output, and give the parameters theirs; elsewhere autograd does that."""
        if self.engine.collecting is not None:
            return self._site.collect_and_train(tuple(saved), grad)
        with self._surroundings.restored():
            output, gradients = self._site.plain_gradients(tuple(saved), grad)
        if self._kept is not None and not close(output, self._kept):
            kind = type(self._site.module).__name__
            raise RuleError(
                f"{self.path}: expected the output of {kind}.forward, got another one; a forward hook that was "
                f"registered for all modules, or with prepend=True, changes it: register it on the module, without "
                f"prepend"
            )
        return gradients
