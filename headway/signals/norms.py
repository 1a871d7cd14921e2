"""Gradient norms: how much a sample pulls at the parameters, whatever is being learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from headway.errors import SignalError
from headway.grads import Reduction
from headway.signals.base import BaseSignal, Batch, Plan, Scope, Unit, Values, check_choice, total

Norm = Literal["l1", "l2-squared"]
Part = Literal["layer", "bias"]


@dataclass(frozen=True, kw_only=True)
class NormAll(BaseSignal):
    """The norm of a sample's gradient over all parameters.

    Attributes:
        norm: "l1" for sum |g|, "l2-squared" for sum g^2.
        unit: "sample" for the gradient of the sample's own loss, "batch" for that gradient divided by the
            batch size, as a mean-reduced loss gives it.
    """

    name: str = "norm_all"
    norm: Norm = "l1"
    unit: Unit = "sample"

    def __post_init__(self) -> None:
        check_choice("unit", self.unit, get_args(Unit))
        check_choice("norm", self.norm, get_args(Norm))

    def chosen(self, scope: Scope) -> list[str]:
        """The parameters whose gradient counts."""
        return list(scope.parameters)

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """One unweighted norm per parameter."""
        kind: Literal["l1", "sq"] = "l1" if self.norm == "l1" else "sq"
        return {"norm": {name: Reduction(kind) for name in self.chosen(scope)}}

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """The sum over the parameters, in the chosen unit."""
        factor = 1.0 if self.unit == "sample" else 1.0 / batch.joined
        power = 1 if self.norm == "l1" else 2
        return total(values["norm"]) * (self.scale * factor**power)


@dataclass(frozen=True, kw_only=True)
class NormLast(NormAll):
    """The norm of a sample's gradient over the last layer.

    The last layer is the module that owns the last of the parameters; `where` narrows them first.

    Attributes:
        part: "layer" for all its parameters, "bias" for those named bias.
    """

    name: str = "norm_last"
    part: Part = "layer"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("part", self.part, get_args(Part))

    def chosen(self, scope: Scope) -> list[str]:
        """The parameters of the last layer whose gradient counts."""
        owner = list(scope.parameters)[-1].rpartition(".")[0]
        layer = [name for name in scope.parameters if name.rpartition(".")[0] == owner]
        if self.part == "layer":
            return layer
        biases = [name for name in layer if name.rpartition(".")[2] == "bias"]
        if not biases:
            raise SignalError(f"expected a bias in the last layer {owner!r}, got only {', '.join(layer)}")
        return biases
