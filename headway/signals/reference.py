"""Signals with a reference: a gradient to agree with, or losses to be compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from headway.errors import SignalError
from headway.grads import Reduction
from headway.grads.sharded import find_sharding
from headway.grads.wrappers import unwrap
from headway.signals.base import BaseSignal, Batch, Plan, Scope, Values, check_choice, total
from headway.signals.losses import check_groups, groups_of

Measure = Literal["dot", "cosine", "projection"]
"""How two gradients are compared, see `Alignment`."""


class Reference:
    """A gradient that samples are compared with, such as that of a validation set.

        reference = headway.Reference()
        meter = headway.Meter(model, headway.Alignment(reference))
        for step, (x, y) in enumerate(loader):
            if step % 50 == 0:
                reference.refresh(model, F.cross_entropy(model(x_valid), y_valid))
            scores = meter.backward(F.cross_entropy(model(x), y, reduction="none"))

    It needs no state of its own: the meter's state has the gradient that its signals last saw.

    Attributes:
        gradients: the gradient by name of parameter; empty before the first refresh.
        version: how often it was set.
    """

    def __init__(self) -> None:
        self.gradients: dict[str, Tensor] = {}
        self.version = 0

    def refresh(self, model: nn.Module, loss: Tensor) -> None:
        """Take the gradient of a loss; `.grad` stays as it is.

        Args:
            model: the model that the meter is attached to.
            loss: one number, with the graph that leads to the model. On a model that is sharded each rank gives a
                loss, and the gradient is that of their mean.

        Raises:
            SignalError: it is not one number.
        """
        if loss.numel() != 1:
            raise SignalError(f"expected one loss of the reference, got {loss.numel()}; pass its mean")
        sharding = find_sharding(unwrap(model))
        if sharding is not None:
            shards = sharding.gradients(loss, retain_graph=False)
            self.set({name: sharding.joined(name, shard / sharding.scale) for name, shard in shards.items()})
            return
        trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        found = torch.autograd.grad(loss, list(trainable.values()), allow_unused=True)
        self.set({name: grad for name, grad in zip(trainable, found, strict=True) if grad is not None})

    def set(self, gradients: Mapping[str, Tensor]) -> None:
        """Take gradients by name of parameter, which were computed elsewhere; those that are missing count as zero.

        On a model that is sharded, they are DTensors or whole.
        """
        self.gradients = {name: gradient.detach() for name, gradient in gradients.items()}
        self.version += 1


@dataclass(frozen=True, kw_only=True)
class Alignment(BaseSignal):
    """How far a step along a sample's gradient g also follows a reference gradient r, with its sign.

        dot         g . r             the first-order fall of the reference's loss, per unit of learning rate
        cosine      g . r / |g| |r|
        projection  g . r / |r|

    A positive score says that learning the sample lowers the reference's loss. The dot product with a validation
    gradient is the core of TracIn, GREATS, LESS and CurES; here it takes one matrix product per layer. Scores are zero
    until the reference is set.

    Attributes:
        reference: the gradient to compare with; it may be refreshed at any time between two batches.
        measure: "dot", "cosine" or "projection".
    """

    reference: Reference = field(kw_only=False)
    measure: Measure = "dot"
    name: str = "alignment"

    def __post_init__(self) -> None:
        check_choice("measure", self.measure, get_args(Measure))
        if not isinstance(self.reference, Reference):
            raise SignalError(f"expected a headway.Reference, got {type(self.reference).__name__}")

    def init(self, scope: Scope) -> None:
        """A gradient of zero."""
        for name, parameter in scope.parameters.items():
            dtype = torch.promote_types(parameter.dtype, torch.float32)
            scope.memory[name] = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """Dot products with the reference, and squared norms for the cosine."""
        if scope.version != (self.reference.version,) and self.reference.version:
            self._copy(scope)
        plan = {"dot": {name: Reduction("dot", scope.memory[name]) for name in scope.parameters}}
        if self.measure == "cosine":
            plan["sq"] = {name: Reduction("sq") for name in scope.parameters}
        return plan

    def _copy(self, scope: Scope) -> None:
        gradients = self.reference.gradients
        for name, parameter in scope.parameters.items():
            if name not in gradients:
                scope.memory[name].zero_()
            elif gradients[name].shape != parameter.shape:
                raise SignalError(
                    f"{name}: expected a reference gradient of shape {list(parameter.shape)}, "
                    f"got {list(gradients[name].shape)}"
                )
            else:
                scope.parts.shard_of(scope.memory[name]).copy_(scope.parts.cut(name, gradients[name]))
        scope.version = (self.reference.version,)

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """The comparison; zero where a vector vanishes."""
        dot = total(values["dot"]) * self.scale
        if self.measure == "dot":
            return dot
        length = scope.length((scope.memory[name] for name in scope.parameters), dot)
        if self.measure == "cosine":
            length = length * total(values["sq"]).sqrt()
        return torch.where(length == 0, 0.0, dot / length.clamp(min=torch.finfo(dot.dtype).tiny))


@dataclass(frozen=True, kw_only=True)
class Excess(BaseSignal):
    """The loss above that of a reference: what a reference model has learned and this one has not yet.

        r(x) = L(x) - L_ref(group of x)

    With `groups` the index of each sample in the dataset and a table of a reference model's losses, this is RHO-LOSS
    (Mindermann et al., 2022); with `groups` the source of each sample and a table by source, the excess loss of DoReMi
    (Xie et al., 2023).

    Attributes:
        reference: the reference's loss of every group [groups].
        clip: replace negative scores by zero, as DoReMi does.
    """

    reference: Tensor = field(kw_only=False, hash=False, compare=False)
    clip: bool = False
    name: str = "excess"

    def __post_init__(self) -> None:
        if not isinstance(self.reference, Tensor) or self.reference.dim() != 1 or not len(self.reference):
            raise SignalError("expected a tensor with the reference's loss of every group, [groups], got another one")
        if not bool(self.reference.isfinite().all()):
            raise SignalError("expected finite losses of the reference, got NaN or infinity among them")

    def validate(self, batch: Batch) -> None:
        """Check the groups."""
        check_groups(batch, len(self.reference))

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """Loss minus reference."""
        groups = groups_of(batch, len(self.reference))
        excess = (batch.losses - self.reference.to(batch.losses)[groups]) * self.scale
        return excess.clamp(min=0) if self.clip else excess


def prediction_gain(before: Tensor, again: Callable[[], Tensor]) -> Tensor:
    """How far the loss of each sample fell by the update that was just made (Graves et al., 2017): L - L'.

        losses = F.cross_entropy(model(x), y, reduction="none")
        losses.mean().backward()
        optimizer.step()
        scores = headway.prediction_gain(losses, lambda: F.cross_entropy(model(x), y, reduction="none"))

    It costs one more forward pass.

    Args:
        before: the losses before the update [B].
        again: computes the losses of the same samples again [B].

    Raises:
        SignalError: the losses have other shapes.
    """
    with torch.no_grad():
        after = again()
    if after.shape != before.shape:
        raise SignalError(f"expected the losses of the same {list(before.shape)} samples, got {list(after.shape)}")
    return before.detach() - after
