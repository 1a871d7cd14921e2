"""Small networks whose weights come from a generator that is passed in, and what trains them with little overhead.

A batch of these networks takes less time than autograd and an optimizer need to find out what to do. Their gradients
are three matrix products per layer, so `record` and `backpropagate` write them down; `Adam` calls torch's fused kernel
without the preparations of `torch.optim`. The numbers are those of autograd and of `torch.optim.Adam`, bit for bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A Linear layer with torch's usual initialisation: uniform within 1 / sqrt(inputs), weight and bias."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = inputs**-0.5
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer


def perceptron(sizes: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [linear(inputs, outputs, generator), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


class PlainLogits(nn.Module):
    """A policy without inputs: one number per source."""

    def __init__(self, sources: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(sources))

    def forward(self, noise: Tensor) -> Tensor:
        """The same logits for every row of `noise`: [B, sources]."""
        return self.logits.expand(len(noise), -1)


@torch.no_grad()
def record(network: nn.Module, inputs: Tensor) -> list[Tensor]:
    """Run a `perceptron` or `PlainLogits` without a graph.

    Returns:
        What each layer saw [B, its inputs], and the output [B, outputs] last.
    """
    if isinstance(network, PlainLogits):
        return [network(inputs).detach()]
    layers = _linears(network)
    seen = [inputs]
    for layer in layers:
        output = F.linear(seen[-1], layer.weight, layer.bias)
        seen.append(output if layer is layers[-1] else output.relu_())
    return seen


@torch.no_grad()
def backpropagate(network: nn.Module, seen: Sequence[Tensor], gradient: Tensor) -> list[Tensor]:
    """Write the gradients of the parameters, from what `record` returned and the gradient at the output [B, outputs].

    Returns:
        The gradient at the output of each layer [B, its outputs].
    """
    if isinstance(network, PlainLogits):
        torch.sum(gradient, 0, out=_grad(network.logits))
        return [gradient]
    layers = _linears(network)
    found = [gradient]
    for place in reversed(range(len(layers))):
        layer = layers[place]
        # The layouts that autograd chooses: another order of the same product may round differently.
        torch.mm(gradient.t(), seen[place], out=_grad(layer.weight))
        torch.sum(gradient, 0, out=_grad(layer.bias))
        if place:
            gradient = torch.ops.aten.threshold_backward(gradient.mm(layer.weight), seen[place], 0)
            found.append(gradient)
    return found[::-1]


def _grad(parameter: Tensor) -> Tensor:
    """Where a gradient goes: what the parameter has, or a new tensor."""
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter)
    return parameter.grad


def _linears(network: nn.Module) -> list[nn.Linear]:
    return [layer for layer in network.children() if isinstance(layer, nn.Linear)]


class Adam(torch.optim.Adam):
    """`torch.optim.Adam` for parameters that all have a gradient at every step.

    `advance` does what `step` does, on the CPU without looking everything up again.
    """

    def __init__(
        self, parameters: Sequence[Tensor], learning_rate: float, betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        self._parameters = list(parameters)
        self._fused = all(parameter.device.type == "cpu" for parameter in self._parameters)
        self._known: tuple[list[Tensor], list[Tensor], Tensor] | None = None
        super().__init__(self._parameters, learning_rate, betas, fused=self._fused)

    @torch.no_grad()
    def advance(self) -> None:
        """Take a step."""
        if not self._fused:
            self.step()
            return
        if self._known is None:
            self._known = self._gather()
        averages, squares, step = self._known
        group = self.param_groups[0]
        step.add_(1)
        torch._fused_adam_(
            self._parameters,
            [parameter.grad for parameter in self._parameters],  # type: ignore[misc]
            averages,
            squares,
            [],
            [step] * len(averages),
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    def _gather(self) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """The state as the kernel takes it; one number counts the steps of all parameters."""
        if not self.state:
            for parameter in self._parameters:
                self.state[parameter] = {
                    "step": torch.zeros(()),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        states = [self.state[parameter] for parameter in self._parameters]
        for state in states:
            state["step"] = states[0]["step"]
        return [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states], states[0]["step"]

    def state_dict(self) -> dict[str, Any]:
        """The state as `torch.optim.Adam` has it, in which every parameter counts its own steps."""
        found: dict[str, Any] = super().state_dict()
        own = {place: {**state, "step": state["step"].clone()} for place, state in found["state"].items()}
        return {**found, "state": own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state of this optimizer, or of `torch.optim.Adam`."""
        super().load_state_dict(state_dict)
        self._known = None
