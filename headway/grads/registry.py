"""The registry of layer rules: exact module type -> how its per-sample gradients are described.

A rule is a function `(module, inputs, grad_output) -> {parameter name: gradients}`. It sees a block of
samples, samples first in every tensor, and returns for each of the module's own parameters either a
tensor [c, *shape] or one of the forms of `headway.grads.persample`. `grad_output` is the gradient of the
samples' losses at the module's output.

    @register_rule(MyScale)
    def my_scale(module, inputs, grad_output):
        return {"scale": (grad_output * inputs[0]).flatten(1).sum(1, keepdim=True)}
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from headway.errors import RuleError
from headway.grads.persample import PerSample

Inputs = tuple[Tensor, ...]
GradsFn = Callable[[nn.Module, Inputs, Tensor], Mapping[str, PerSample | Tensor]]
FootprintFn = Callable[[nn.Module, Inputs, Tensor], int]


def default_footprint(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> int:
    """Numbers that a sample needs in a block: its inputs, its output and a gradient of every parameter."""
    tensors = [*inputs, grad_output]
    per_sample = sum(tensor.numel() for tensor in tensors) // max(1, grad_output.shape[0])
    return per_sample + sum(parameter.numel() for parameter in module.parameters(recurse=False))


@dataclass(frozen=True)
class Rule:
    """How a type of module is scored.

    Attributes:
        grads: describes the per-sample gradients of a block.
        footprint: numbers that one sample needs while its block is reduced; sets the block's size.
        samples_first: the module fixes dimension 0 as the samples (convolutions), whatever the model does.
        simultaneous: tells from the inputs whether the weight's gradient is better summed from the
            per-sample gradients than computed by a product of its own.
    """

    grads: GradsFn
    footprint: FootprintFn = default_footprint
    samples_first: bool = False
    simultaneous: Callable[[Inputs], bool] | None = None

    @property
    def is_built_in(self) -> bool:
        """Whether it is one of headway's own."""
        return self.grads.__module__.startswith("headway.")


_RULES: dict[type[nn.Module], Rule] = {}


def register_rule(
    *types: type[nn.Module],
    footprint: FootprintFn = default_footprint,
    samples_first: bool = False,
    simultaneous: Callable[[Inputs], bool] | None = None,
) -> Callable[[GradsFn], GradsFn]:
    """Register the decorated function as the rule for exactly these module types.

    Raises:
        RuleError: a type has a rule already (`unregister_rule` removes it).
    """

    def decorate(grads: GradsFn) -> GradsFn:
        for kind in types:
            if kind in _RULES:
                raise RuleError(
                    f"expected a module type without a rule, got {kind.__name__}, which has one; "
                    f"call unregister_rule({kind.__name__}) first to replace it"
                )
            _RULES[kind] = Rule(grads, footprint, samples_first, simultaneous)
        return grads

    return decorate


def unregister_rule(kind: type[nn.Module]) -> None:
    """Remove the rule for a module type, so that the fallback or another rule takes its place.

    Raises:
        RuleError: the type has no rule; the message lists those that have.
    """
    if _RULES.pop(kind, None) is None:
        known = ", ".join(sorted(known.__name__ for known in _RULES))
        raise RuleError(f"expected a module type with a rule, got {kind.__name__}; known: {known}")


def rule_for(module: nn.Module) -> Rule | None:
    """The rule for exactly the type of a module; a subclass may compute something else, so it has none."""
    return _RULES.get(kind_of(module))


def has_usual_names(module: nn.Module, own: Mapping[str, str]) -> bool:
    """Whether a layer of torch has the parameters that its rule knows; pruning and old weight_norm rename them."""
    return not kind_of(module).__module__.startswith("torch.nn") or set(own) <= {"weight", "bias"}


def is_sharded(module: nn.Module) -> bool:
    """Whether fully_shard was called on a module; if nobody has imported it, it was not."""
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    return kind is not None and isinstance(module, kind)


def kind_of(module: nn.Module) -> type[nn.Module]:
    """The type of a module as it was written: fully_shard puts classes of its own before it."""
    if not is_sharded(module):
        return type(module)
    added = sys.modules["torch.distributed.fsdp"].FSDPModule
    return next(kind for kind in type(module).__mro__ if not issubclass(kind, added))
