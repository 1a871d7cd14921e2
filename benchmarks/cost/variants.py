"""A training step (forward, backward, Adam, zero_grad) and the ways to score samples in it.

Every variant scores with the same GMC: m and v are moving averages of the batch gradient and of its square.
The peers get the per-sample gradients [B, *shape] of each parameter from their library and reduce them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.cost.cases import Case, Data, losses
from headway.errors import HeadwayError
from headway.meter import Meter
from headway.moments import Flat, Moments
from headway.signals import GMC

Backward = Callable[[Data], Tensor | None]
"""Forward and backward pass of a batch: leaves `.grad` and returns one score per sample [B], or None."""

Step = Callable[[Data], Tensor | None]
"""A whole training step; returns what the backward pass returned."""


def plain(model: nn.Module) -> Backward:
    """Training without scores."""

    def backward(data: Data) -> None:
        losses(model(data.x), data.y).mean().backward()

    return backward


def metered(model: nn.Module) -> Backward:
    """Training with headway's scores."""
    meter = Meter(model, GMC())

    def backward(data: Data) -> Tensor:
        scores: Tensor = meter.backward(losses(model(data.x), data.y))
        return scores

    return backward


class Unsupported(HeadwayError):  # noqa: N818 - an outcome that is reported, not a failure of the benchmark
    """A library is not installed or cannot handle a model; the message says why."""


class Coupling:
    """GMC of per-sample gradients that are given whole.

    Args:
        model: the model; all its parameters are scored.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parameters = dict(model.named_parameters())
        self._signal = GMC()
        self._moments = Moments(self.parameters, self._signal.decay)
        self._weights = Flat(self.parameters)
        self._root = sum(p.numel() for p in self.parameters.values()) ** 0.5

    def prepare(self) -> None:
        """Compute the weights |m| / max(v, floor) of the batch to come."""
        self._weights = self._moments.ratios(self.parameters, self._signal.floor, self._weights, absolute=True)

    def of(self, name: str, gradients: Tensor) -> Tensor:
        """The share of one parameter in the scores [B]: sum_i |g_i| w_i / sqrt(d).

        Args:
            name: the parameter.
            gradients: [B, *shape]. Those of a matrix are overwritten: that saves a copy of the largest tensors,
                while those of a bias may be the library's own gradient at the layer's output.
        """
        size = gradients.flatten(1).abs_() if gradients.dim() > 2 else gradients.abs()
        return size.mv(self._weights[name].flatten()) / self._root

    def update(self) -> None:
        """Take `.grad` into the moments."""
        self._moments.update({name: parameter.grad for name, parameter in self.parameters.items()})


def torch_func(model: nn.Module) -> Backward:
    """vmap of grad: the gradients of all samples at once, and `.grad` as their mean.

    Attention runs on its decomposed kernel: vmap has no rule for the fused one and would loop over the samples.
    """
    coupling = Coupling(model)

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return losses(functional_call(model, parameters, (x.unsqueeze(0),)), y.unsqueeze(0)).squeeze(0)

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))

    def backward(data: Data) -> Tensor:
        coupling.prepare()
        detached = {name: parameter.detach() for name, parameter in coupling.parameters.items()}
        with sdpa_kernel(SDPBackend.MATH):
            gradients = per_sample(detached, data.x, data.y)
        scores = torch.zeros(len(data.x))
        for name, parameter in coupling.parameters.items():
            own = gradients.pop(name)
            parameter.grad = own.mean(0)
            scores += coupling.of(name, own)
        coupling.update()
        return scores

    return backward


def opacus(model: nn.Module) -> Backward:
    """Opacus: hooks store the gradients of all samples beside each parameter."""
    wrapped = _library("opacus.grad_sample", "pip install opacus").GradSampleModule(model)
    coupling = Coupling(model)

    def backward(data: Data) -> Tensor:
        coupling.prepare()
        with warnings.catch_warnings():
            # Of the first layer, whose input needs no gradient; its parameters get theirs nevertheless.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            losses(wrapped(data.x), data.y).mean().backward()
        scores = torch.zeros(len(data.x))
        for name, parameter in coupling.parameters.items():
            stored: Any = parameter
            scores += coupling.of(name, stored.grad_sample)
            stored.grad_sample = None
        coupling.update()
        return scores

    return backward


def backpack(model: nn.Module) -> Backward:
    """BackPACK: BatchGrad of each layer, reduced and dropped in its extension hook as soon as it is there."""
    install = "pip install --no-deps backpack-for-pytorch"
    library, extensions = _library("backpack", install), _library("backpack.extensions", install)
    coupling = Coupling(model)
    names = {parameter: name for name, parameter in coupling.parameters.items()}
    layers = [module for module in model.modules() if not any(True for _ in module.children())]
    for layer in layers:  # not the containers: there is nothing to compute for them
        library.extend(layer)
    shares: dict[str, Tensor] = {}

    def reduce(module: nn.Module) -> None:
        for parameter in module.parameters(recurse=False):
            stored: Any = parameter
            if not hasattr(stored, "grad_batch"):
                raise Unsupported(f"BackPACK computes no per-sample gradients of {type(module).__name__}")
            shares[names[parameter]] = coupling.of(names[parameter], stored.grad_batch)
            del stored.grad_batch

    def backward(data: Data) -> Tensor:
        coupling.prepare()
        shares.clear()
        with library.backpack(extensions.BatchGrad(), extension_hook=reduce), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            warnings.filterwarnings("ignore", message="Extension saving to grad_batch")  # refused in `reduce`
            losses(model(data.x), data.y).mean().backward()
        coupling.update()
        # The gradients carry the 1 / B of the mean.
        return torch.stack(list(shares.values())).sum(0) * len(data.x)

    return backward


def _library(module: str, install: str) -> Any:
    """An optional package, or the way to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.split(".")[0]
        missing = (error.name or "").split(".")[0]
        because = "" if missing in ("", name) else f" (it needs {missing})"
        raise Unsupported(f"{name} is not installed{because}; run: {install}") from error


@dataclass(frozen=True)
class Variant:
    """One way to do a training step.

    Attributes:
        key: its name on the command line and in results.
        title: its name in tables and figures.
        backward: turns a model into the backward pass of this variant.
        peer: another library, which may be missing or not support a model.
    """

    key: str
    title: str
    backward: Callable[[nn.Module], Backward]
    peer: bool = True


VARIANTS: Mapping[str, Variant] = {
    variant.key: variant
    for variant in (
        Variant("plain", "plain step", plain, peer=False),
        Variant("headway", "headway", metered, peer=False),
        Variant("torch.func", "torch.func", torch_func),
        Variant("opacus", "Opacus", opacus),
        Variant("backpack", "BackPACK", backpack),
    )
}


def make_step(variant: Variant, case: Case) -> Step:
    """The training step of a variant on a case, with a model of its own.

    Raises:
        Unsupported: the peer is not installed or cannot handle the model.
    """
    model = case.build()
    backward = variant.backward(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(data: Data) -> Tensor | None:
        scores = backward(data)
        optimizer.step()
        optimizer.zero_grad()
        return scores

    return step


def try_step(variant: Variant, case: Case, data: Data) -> Step:
    """A step that has run once.

    Raises:
        Unsupported: the peer is not installed or fails on the model; the message is its own.
    """
    try:
        step = make_step(variant, case)
        step(data)
    except Unsupported:
        raise
    except Exception as error:
        if not variant.peer:
            raise
        reason = next(iter(str(error).strip().splitlines()), "no message")
        raise Unsupported(f"{variant.title} fails: {type(error).__name__}: {reason[:200]}") from error
    return step
