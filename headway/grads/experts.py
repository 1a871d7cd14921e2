"""Mixtures of experts as transformers has them: the weights of all experts in one parameter [E, p, d].

Every implementation of such a module (eager, batched, grouped) gathers the rows of tokens by expert, so that the
rows at an expert do not show their samples. What goes in and comes out does: a row for each token, and the experts
that the router chose for it. The rule starts from there. It sorts the pairs of a token and an expert by expert,
computes what the experts did to them again, and hands out the factors of the gradients with the owner of each pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headway.errors import RuleError
from headway.grads.passes import Contribution
from headway.grads.persample import PerSample, Rows, widened
from headway.grads.registry import Inputs, Rule
from headway.grads.routed import Routed, Routing
from headway.grads.rule_sites import RuleSite

if TYPE_CHECKING:
    from headway.grads.engine import Engine


def is_experts(module: nn.Module, own: Mapping[str, str]) -> bool:
    """Whether a module keeps and runs experts as transformers has it (`use_experts_implementation`)."""
    marks = ("has_gate", "has_bias", "is_transposed", "num_experts", "_apply_gate")
    if not all(hasattr(module, mark) for mark in marks) or getattr(module, "has_post_expert_norm", False):
        return False
    known = set(_names(module))
    has_own = {name for name, _ in module.named_parameters(recurse=False)}
    return has_own == known >= own.keys() and not getattr(module, "_is_expert_parallel", False)


def _names(module: Any) -> list[str]:
    weights = ["gate_up_proj" if module.has_gate else "up_proj", "down_proj"]
    return weights + [f"{name}_bias" for name in weights] if module.has_bias else weights


def _footprint(module: Any, inputs: Inputs, grad_output: Tensor) -> int:
    """A gradient of the largest matrix of one expert, and what a token needs at all of its experts."""
    up, down = (getattr(module, name) for name in _names(module)[:2])
    widths = sum(up.shape[1:]) + sum(down.shape[1:])
    return _largest(module) + 3 * inputs[1].shape[-1] * widths


def _largest(module: Any) -> int:
    return max(int(getattr(module, name)[0].numel()) for name in _names(module)[:2])


def experts(module: Any, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """y = sum over a token's experts e, with weights w_e, of w_e D_e act(U_e x): a rule for one token per sample."""
    if len(inputs) != 3 or inputs[0].dim() != 2 or inputs[1].shape != inputs[2].shape:
        raise RuleError(
            f"{type(module).__name__}: expected tokens [N, d] with the numbers and weights of their experts [N, k], "
            f"got shapes {[list(x.shape) for x in inputs]}; leave its parameters out with where="
        )
    with torch.autocast(grad_output.device.type, enabled=False):  # the backward pass may run inside of it
        return _forms(module, *inputs, grad_output)


def _forms(module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor, grad_output: Tensor) -> dict[str, PerSample]:
    """The forms of the experts' weights and biases, with the tokens sorted by expert."""
    count, dtype = int(module.num_experts), widened(torch.promote_types(hidden.dtype, grad_output.dtype))
    sorted_experts, order = chosen.reshape(-1).sort(stable=True)
    owners = order // chosen.shape[1]
    routing = Routing(sorted_experts, owners, len(hidden), count)
    names = _names(module)
    x = hidden.to(dtype)[owners]
    at_down = grad_output.to(dtype)[owners] * weights.reshape(-1)[order].to(dtype).unsqueeze(1)
    up, down = (getattr(module, name).detach() for name in names[:2])
    if module.is_transposed:
        up, down = up.mT, down.mT
    counts = routing.counts()
    between = torch.cat([rows @ w.to(dtype).mT for rows, w in zip(x.split(counts), up, strict=True)])
    if module.has_bias:
        between += getattr(module, names[2]).detach().to(dtype)[sorted_experts]
    with torch.enable_grad():
        between.requires_grad_()
        active = module._apply_gate(between) if module.has_gate else module.act_fn(between)
    at_active = torch.cat([rows @ w.to(dtype) for rows, w in zip(at_down.split(counts), down, strict=True)])
    (at_up,) = torch.autograd.grad(active, between, at_active.to(active.dtype))
    pairs = [(x, at_up), (active.detach(), at_down)]
    forms: dict[str, PerSample] = {}
    for i, (a, b) in enumerate(pairs):
        forms[names[i]] = Routed(b, a, routing) if module.is_transposed else Routed(a, b, routing)
        if module.has_bias:
            own = torch.empty_like(b).index_copy_(0, order, b)
            forms[names[i + 2]] = Rows(chosen, own.view(*chosen.shape, -1), count)
    return forms


_RULE = Rule(experts, _footprint, simultaneous=lambda inputs: True)


class ExpertsSite(RuleSite):
    """A module of experts."""

    def __init__(self, engine: Engine, path: str, module: nn.Module, own: Mapping[str, str]) -> None:
        """See `RuleSite`: the weights of all experts can be trained by their per-sample gradients."""
        super().__init__(engine, path, module, own, _RULE)
        shared = any(engine.uses.is_shared(name) for name in self.names)
        self._may_train = engine.simultaneous and self.own.keys() == set(_names(module)) and not shared

    def contribution(self, saved: Inputs, grad: Tensor, samples: int) -> Contribution:
        """See `RuleSite.contribution`: no sample's gradient of more than one expert is formed at a time."""
        self.engine.layouts.try_flat(self.path, grad.shape, samples)
        return self.of_rows(saved, grad, samples, _largest(self.module))
