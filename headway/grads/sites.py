"""Sites: the modules of a model that the engine watches, and what it does at each."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from headway.errors import LayoutError, RuleError
from headway.grads import compiled
from headway.grads.direct import Origin, Tracked, anchor, is_tracked, is_tracked_call, track
from headway.grads.fallback import Leaves, Surroundings, close
from headway.grads.folding import by_sample
from headway.grads.hooks import Hook, without_forward_hooks
from headway.grads.layout import samples_first
from headway.grads.observe import observe, observe_and_train
from headway.grads.passes import Contribution
from headway.grads.persample import Dense, PerSample
from headway.grads.registry import Inputs, Rule

if TYPE_CHECKING:
    from headway.grads.engine import Engine


Slots = dict[str, Any]
"""A module's parameters by their own names; for the time of a forward, other tensors may stand in for them."""

Replaced = tuple[Slots, str, Tensor]
"""A place, and the tensor that belongs there."""


@dataclass
class Call:
    """A call of a module that is under way.

    Attributes:
        args: its arguments before other hooks have changed them.
        kwargs: the same of its keyword arguments.
        replaced: what to put back behind it.
        surroundings: random state and autocast before it, where a replay will need them.
    """

    args: Any
    kwargs: Any
    replaced: list[Replaced] = field(default_factory=list)
    surroundings: Surroundings | None = None


def own_slots(module: nn.Module) -> Slots:
    """The places of a module's own parameters."""
    return module._parameters


def parameter_slots(module: nn.Module) -> list[Slots]:
    """The places of all parameters of a module and below."""
    return [own_slots(owner) for owner in module.modules()]


class Site(Protocol):
    """A watched module."""

    def attach(self) -> list[Any]:
        """Register hooks; return their handles."""
        ...

    def release(self) -> None:
        """Undo whatever removing the handles does not undo."""
        ...

    def release_places(self) -> None:
        """Put the parameters back in their places, after a forward that was interrupted."""
        ...


class OwnerSite:
    """A module whose own parameters are scored as one unit: what its kinds have in common."""

    def __init__(self, engine: Engine, path: str, module: nn.Module, own: Mapping[str, str]) -> None:
        """Note the module's parameters: local name -> name in the model."""
        self.engine = engine
        self.path = path or "model"
        self.module = module
        self.own = dict(own)
        self.names = tuple(self.own.values())
        self._plain: list[Replaced] = [
            (slots, local, parameter)
            for slots in parameter_slots(module)
            for local, parameter in slots.items()
            if parameter is not None
        ]
        self._calls: list[Call] = []

    def attach(self) -> list[Any]:
        """See `Site.attach`. Nobody's hook comes between these two and the module's own forward."""
        return [
            self.module.register_forward_pre_hook(Hook(self._before), prepend=True, with_kwargs=True),
            self.module.register_forward_hook(Hook(self._after), prepend=True, with_kwargs=True, always_call=True),
        ]

    def release(self) -> None:
        """See `Site.release`."""
        self.release_places()

    def release_places(self) -> None:
        """See `Site.release_places`."""
        for call in self._calls:
            _put_back(call)
        self._calls.clear()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if torch.compiler.is_compiling():
            return None
        call = Call(args, kwargs)
        self._calls.append(call)
        for slots, local, parameter in self._plain:
            current = slots[local]
            if isinstance(current, Tracked):
                call.replaced.append((slots, local, current))
                slots[local] = parameter
        if not self.engine.listening():
            return None
        if is_tracked_call(args, kwargs):
            call.args, call.kwargs = anchor((args, kwargs))
        self.prepare(call)
        return call.args, call.kwargs

    def prepare(self, call: Call) -> None:
        """A last word before the module runs."""

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.listen_compiled(args, kwargs, output) if self.engine.listening() else None
        if not self._calls:
            return None
        call = self._calls.pop()
        _put_back(call)
        if output is None or not self.engine.listening() or is_tracked_call(args, kwargs):
            return None  # operations on tracked tensors have been followed one by one
        return self.listen(call, args, kwargs, output)

    def listen(self, call: Call, args: Any, kwargs: Any, output: Any) -> Any:
        """Observe a call's output; the arguments are those that the module's own forward got."""
        raise NotImplementedError

    def listen_compiled(self, args: Any, kwargs: Any, output: Any) -> Any:
        """Observe a call's output inside torch.compile; a module that cannot is missed, and that is an error."""
        return None

    def inputs(self, args: Any, kwargs: Any) -> Inputs:
        """The tensors among a call's arguments, in the order of the module's signature."""
        if kwargs:
            bound = inspect.signature(self.module.forward).bind(*args, **kwargs)
            args = tuple(bound.arguments.values())
        return tuple(arg for arg in args if isinstance(arg, Tensor))

    def sees_no_samples(self, tensors: Sequence[Tensor]) -> bool:
        """Whether a call's inputs are the same for all samples, such as position indices."""
        declared = self.engine.layouts.declared(self.path)
        hint = self.engine.batch_hint
        if declared is not None or hint is None or not tensors:
            return declared == "shared" or (declared is None and not tensors)
        first = tensors[0]
        if first.requires_grad:
            return False
        if first.dim() == 1 and not first.is_floating_point() and hint > 1 and _is_range(first):
            if len(first) == hint:
                raise LayoutError(
                    f"{self.path}: expected inputs that tell samples from positions, got 0, 1, ..., "
                    f"{hint - 1} for {hint} samples; pass layout={{{self.path!r}: 'shared'}} if these are "
                    f"positions, or 'samples-first' if each belongs to a sample"
                )
            return True
        if first.dim() == 0 or hint == 1:
            return first.dim() == 0 or first.shape[0] != 1
        if hint in first.shape[:2] and first.shape[0] != 1:
            return False
        return first.shape[0] % hint != 0

    def share(self, call: Call, output: Any) -> Any:
        """Track the output of a call that sees no samples: it follows from parameters alone."""
        engine, own = self.engine, self.own
        leaves, spec = tree_flatten(output)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.requires_grad:

                def rebuild(parameters: Leaves, i: int = i) -> Tensor:
                    values = {local: parameters[name] for local, name in own.items()}
                    with engine.paused():
                        again = self.again(values, call.args, call.kwargs)
                    value: Tensor = tree_flatten(again)[0][i]
                    return value

                leaves[i] = track(leaf, Origin(engine, tuple(own.values()), rebuild))
        return tree_unflatten(leaves, spec)

    def again(self, state: Mapping[str, Tensor], args: Any, kwargs: Any) -> Any:
        """Run the module on other parameters, up to where its output was observed: before any forward hook."""
        with without_forward_hooks(self.module):
            return torch.func.functional_call(self.module, dict(state), args, kwargs)


def _put_back(call: Call) -> None:
    for slots, local, tensor in reversed(call.replaced):
        slots[local] = tensor


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
            and not any(engine.is_shared(name) for name in self._trained)
        )
        self._trains = False
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
                slots[local] = self._trained[name].detach()

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
        if self.rule.samples_first or layouts.declared(self.path) == "flat":
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
        return first.dim() == 1 and len(first) > 1 and not first.is_floating_point() and _is_range(first)

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
            if not isinstance(form, Tensor) and form.size() != (samples, self._trained[name].numel()):
                raise RuleError(
                    f"{self.path}: expected the rule for {kind} to give {samples} gradients of {local!r} with "
                    f"{self._trained[name].numel()} numbers each, got a {type(form).__name__} of {form.size()}"
                )

    def collect(self, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        current = self.engine.current
        if current is not None and not self.engine.is_paused:
            current.add(self.contribution(tuple(saved), grads[0], current.samples))

    def collect_and_train(self, saved: Inputs, grad: Tensor) -> list[Tensor]:
        """Reduce the per-sample gradients of a call and add them up to those of the parameters."""
        current = self.engine.current
        assert current is not None
        totals = {
            name: p.new_zeros(p.numel(), dtype=torch.promote_types(p.dtype, torch.float32))
            for name, p in self._trained.items()
        }
        if not current.add(self.contribution(saved, grad, current.samples), totals):
            gradients = RuleContribution(self, saved, grad).block(0, len(grad))
            totals = {name: gradients[name].total() for name in self._trained}
        return [totals[name].view_as(p).to(p.dtype) for name, p in self._trained.items()]

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
        if site.engine.current is not None and not site.engine.is_paused:
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
        self.params = self.site.names
        self.footprint = self.site.rule.footprint(self.site.module, self.inputs, self.grad_output)

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


def _is_range(ids: Tensor) -> bool:
    """Whether a vector of integers is 0, 1, 2, ..."""
    return bool(torch.equal(ids, torch.arange(len(ids), device=ids.device, dtype=ids.dtype)))
