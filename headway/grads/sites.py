"""Sites: the modules of a model that the engine watches, and what it does at each."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from headway.errors import LayoutError
from headway.grads import compiled
from headway.grads.direct import Origin, Tracked, anchor, is_tracked, parameter_origin, track
from headway.grads.fallback import Function, Leaves, Replay
from headway.grads.layout import samples_first
from headway.grads.observe import observe, observe_and_train
from headway.grads.persample import Dense, PerSample
from headway.grads.registry import Inputs, Rule

if TYPE_CHECKING:
    from headway.grads.engine import Engine


class Site(Protocol):
    """A watched module."""

    def attach(self) -> list[Any]:
        """Register hooks; return their handles."""
        ...

    def release(self) -> None:
        """Undo whatever removing the handles does not undo."""
        ...


class Container:
    """A module with children, whose forward may use parameters directly.

    The outermost container that runs replaces all parameters below it by tracked aliases for the time of
    its forward; modules that have a site of their own put the plain ones back for theirs.
    """

    def __init__(self, engine: Engine, path: str, module: nn.Module) -> None:
        """Find the parameters below the module."""
        self.engine = engine
        self.module = module
        self._places = [
            (owner._parameters, local, parameter, parameter_origin(engine, name))
            for owner in module.modules()
            for local, parameter in owner._parameters.items()
            if parameter is not None and (name := engine.name_of(parameter)) is not None
        ]
        self._entered: list[bool] = []

    def attach(self) -> list[Any]:
        """See `Site.attach`."""
        return [
            self.module.register_forward_pre_hook(self._enter, with_kwargs=True),
            self.module.register_forward_hook(self._leave, always_call=True),
        ]

    def release(self) -> None:
        """See `Site.release`."""

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        engine = self.engine
        outermost = engine.depth == 0 and engine.listening()
        self._entered.append(outermost)
        if not outermost:
            return
        engine.depth += 1
        if engine.current is None:
            engine.set_batch_hint((args, kwargs))
        for owner, local, parameter, origin in self._places:
            owner[local] = track(parameter, origin)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not (self._entered and self._entered.pop()):
            return
        self.engine.depth -= 1
        for owner, local, parameter, _ in self._places:
            owner[local] = parameter


class OwnerSite:
    """A module whose own parameters are scored as one unit: what its kinds have in common."""

    def __init__(self, engine: Engine, path: str, module: nn.Module, own: Mapping[str, str]) -> None:
        """Note the module's parameters: local name -> name in the model."""
        self.engine = engine
        self.path = path or "model"
        self.module = module
        self.own = dict(own)
        self.names = tuple(self.own.values())
        self._plain = [
            (owner, local, parameter)
            for owner in module.modules()
            for local, parameter in owner._parameters.items()
            if parameter is not None
        ]
        self._put_back: list[list[tuple[nn.Module, str, Tensor]]] = []

    def attach(self) -> list[Any]:
        """See `Site.attach`."""
        return [
            self.module.register_forward_pre_hook(self._before, with_kwargs=True),
            self.module.register_forward_hook(self._after, with_kwargs=True, always_call=True),
        ]

    def release(self) -> None:
        """See `Site.release`."""

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if torch.compiler.is_compiling():
            return None
        replaced: list[tuple[nn.Module, str, Tensor]] = []
        self._put_back.append(replaced)
        for owner, local, parameter in self._plain:
            current = owner._parameters[local]
            if isinstance(current, Tracked):
                replaced.append((owner, local, current))
                owner._parameters[local] = parameter
        if not self.engine.listening():
            return None
        if is_tracked((args, kwargs)):
            args, kwargs = anchor((args, kwargs))
        self.prepare(args, kwargs, replaced)
        return args, kwargs

    def prepare(self, args: Any, kwargs: Any, replaced: list[tuple[nn.Module, str, Tensor]]) -> None:
        """A last word before the module runs."""

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.listen_compiled(args, kwargs, output) if self.engine.listening() else None
        for owner, local, tensor in reversed(self._put_back.pop() if self._put_back else []):
            owner._parameters[local] = tensor  # type: ignore[assignment]
        if output is None or not self.engine.listening() or is_tracked((args, kwargs)):
            return None  # operations on tracked tensors have been followed one by one
        return self.listen(args, kwargs, output)

    def listen(self, args: Any, kwargs: Any, output: Any) -> Any:
        """Observe a call's output."""
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

    def share(self, args: Any, kwargs: Any, output: Any) -> Any:
        """Track the output of a call that sees no samples: it follows from parameters alone."""
        engine, module, own = self.engine, self.module, self.own
        leaves, spec = tree_flatten(output)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and leaf.requires_grad:

                def rebuild(parameters: Leaves, i: int = i) -> Tensor:
                    values = {local: parameters[name] for local, name in own.items()}
                    with engine.paused():
                        again = torch.func.functional_call(module, values, args, kwargs)
                    value: Tensor = tree_flatten(again)[0][i]
                    return value

                leaves[i] = track(leaf, Origin(engine, tuple(own.values()), rebuild))
        return tree_unflatten(leaves, spec)


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

    def prepare(self, args: Any, kwargs: Any, replaced: list[tuple[nn.Module, str, Tensor]]) -> None:
        """Hide the parameters from autograd if their gradients will come from the per-sample gradients."""
        self._trains = self._may_train and self._wants_to_train(self.inputs(args, kwargs))
        if self._trains:
            for local, name in self.own.items():
                replaced.append((self.module, local, self._trained[name]))
                self.module._parameters[local] = self._trained[name].detach()  # type: ignore[assignment]

    def _wants_to_train(self, inputs: Inputs) -> bool:
        return (
            self.rule.simultaneous is not None
            and bool(inputs)
            and not is_tracked(inputs)
            and self.rule.simultaneous(inputs)
            and (self.rule.samples_first or not self.sees_no_samples(inputs))
        )

    def listen(self, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        """See `OwnerSite.listen`."""
        inputs = self.inputs(args, kwargs)
        if not self._trains and not self.rule.samples_first and self.sees_no_samples(inputs):
            shared: Tensor = self.share(args, kwargs, output)
            return shared
        self.engine.count_use(self.names)
        if self._trains:
            return observe_and_train(self, output, list(self._trained.values()), inputs)
        return observe(self, [output], inputs)[0] if output.requires_grad else output

    def listen_compiled(self, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        """See `OwnerSite.listen_compiled`."""
        saved = [tensor.detach() for tensor in self.inputs(args, kwargs)]
        result: Tensor = torch.ops.headway.observe(output, saved, self._number)
        return result

    def called(self) -> None:
        """See `CompiledListener.called`."""
        self.engine.count_use(self.names)

    def contribution(self, saved: Inputs, grad: Tensor, samples: int) -> RuleContribution:
        """Describe a call's share of the gradients, samples first."""
        if self.rule.samples_first:
            if grad.shape[0] != samples:
                raise LayoutError(
                    f"{self.path}: expected {samples} samples (one per loss) in dimension 0 of its output, "
                    f"got shape {list(grad.shape)}"
                )
            return RuleContribution(self, saved, grad)
        layout = self.engine.layouts.find(self.path, grad, samples)
        if self._are_positions(saved[0]):  # only a compiled graph gets here: eager calls were tracked instead
            raise LayoutError(
                f"{self.path}: expected inputs that belong to samples, got the same positions for all of them "
                f"inside torch.compile, where headway cannot follow them; leave its parameters out with where=, "
                f"or pass layout={{{self.path!r}: 'samples-first'}} if they are not positions"
            )
        if layout == "samples-first":
            return RuleContribution(self, saved, grad)
        inputs = tuple(samples_first(tensor, layout, samples) for tensor in saved)
        return RuleContribution(self, inputs, samples_first(grad, layout, samples))

    def _are_positions(self, first: Tensor) -> bool:
        undeclared = self.engine.layouts.declared(self.path) is None
        return undeclared and first.dim() == 1 and len(first) > 1 and not first.is_floating_point() and _is_range(first)

    def collect(self, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        current = self.engine.current
        if current is not None and not self.engine.is_paused:
            current.add(self.contribution(tuple(saved), grads[0], current.samples))

    def collect_and_train(self, saved: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
        """See `TrainingListener.collect_and_train`."""
        current = self.engine.current
        if current is not None and not self.engine.is_paused:
            contribution = self.contribution(tuple(saved), grad, current.samples)
            totals = {
                name: p.new_zeros(p.numel(), dtype=torch.promote_types(p.dtype, torch.float32))
                for name, p in self._trained.items()
            }
            if current.add(contribution, totals):
                return self._shaped(totals)
        gradients = RuleContribution(self, tuple(saved), grad).block(0, len(grad))
        return self._shaped({name: gradients[name].total() for name in self._trained})

    def _shaped(self, flat: Mapping[str, Tensor]) -> list[Tensor]:
        return [flat[name].view_as(p).to(p.dtype) for name, p in self._trained.items()]


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
        forms: dict[str, PerSample] = {}
        for local, name in self.site.own.items():
            form = grads[local]
            forms[name] = Dense(form) if isinstance(form, Tensor) else form
        return forms


class ModuleSite(OwnerSite):
    """A module without a rule and without children: replayed as a whole."""

    def listen(self, args: Any, kwargs: Any, output: Any) -> Any:
        """See `OwnerSite.listen`."""
        leaves, spec = tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        tensors = [leaves[i] for i in places]
        if self.sees_no_samples(tensors):
            return self.share(args, kwargs, output)
        outputs, out_spec = tree_flatten(output)
        wanted = [i for i, leaf in enumerate(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not wanted:
            return output
        self.engine.count_use(self.names)
        call = ModuleCall(self, [None if i in places else leaf for i, leaf in enumerate(leaves)], spec, places, wanted)
        if self.engine.checking:
            call.kept = [outputs[i].detach().clone() for i in wanted]
        for i, observed in zip(wanted, observe(call, [outputs[i] for i in wanted], tensors), strict=True):
            outputs[i] = observed
        return tree_unflatten(outputs, out_spec)


class ModuleCall:
    """One call of a module without a rule."""

    def __init__(self, site: ModuleSite, leaves: list[Any], spec: Any, places: list[int], wanted: list[int]) -> None:
        """Keep the call without its tensors; those are saved in the graph."""
        self.site = site
        self.kept: list[Tensor] | None = None
        self._leaves, self._spec, self._places, self._wanted = leaves, spec, places, wanted
        engine = site.engine
        self.function = Function(
            site.path, self._replay, {name: engine.parameters[name] for name in site.own.values()}
        )
        self.function.mapped = engine.remembered(site.path)

    def _replay(self, parameters: Leaves, tensors: Sequence[Tensor], index: Tensor) -> list[Tensor]:
        leaves = list(self._leaves)
        for i, tensor in zip(self._places, tensors, strict=True):
            leaves[i] = tensor
        args, kwargs = tree_unflatten(leaves, self._spec)
        state = {local: parameters[name] for local, name in self.site.own.items()}
        state |= {name: buffer.clone() for name, buffer in self.site.module.named_buffers()}
        outputs = tree_flatten(torch.func.functional_call(self.site.module, state, args, kwargs))[0]
        return [outputs[i] for i in self._wanted]

    def collect(self, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        engine = self.site.engine
        current = engine.current
        if current is None or engine.is_paused:
            return
        kept, self.kept = self.kept, None
        with engine.paused():
            replay = Replay(self.function, list(saved), list(grads), current.samples, engine.layouts, kept)
            engine.remember(self.site.path, self.function.mapped)
            current.add(replay)


def _is_range(ids: Tensor) -> bool:
    """Whether a vector of integers is 0, 1, 2, ..."""
    return bool(torch.equal(ids, torch.arange(len(ids), device=ids.device, dtype=ids.dtype)))

