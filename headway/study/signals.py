"""The signals of the study by name, with the choices of a protocol."""

from __future__ import annotations

from typing import Any

from headway.errors import SignalError
from headway.signals import (
    GMC,
    Cosine,
    Curiosity,
    DeltaLoss,
    DotProduct,
    NormAll,
    NormLast,
    Projection,
    Signal,
    Uniform,
)
from headway.study.protocols.controlled import Protocol

SIX = ("uniform", "curiosity", "gmc", "norm_last", "norm_all", "delta_loss")
"""The six signals that the study compares."""

NAMES = (*SIX, "dot", "cosine", "projection", "gmc_hard", "gmc_soft")
"""All signals that a controlled run can have: the six, those of the ablation, and GMC behind a noise gate."""


def make_signal(name: str, protocol: Protocol, arms: int) -> Signal:
    """The signal of that name.

    Raises:
        SignalError: there is none; the message lists them.
    """
    p = protocol
    moments: dict[str, Any] = {
        "beta": p.beta if p.beta_v is None else (p.beta, p.beta_v),
        "floor": p.floor,
        "unit": p.floor_unit,
        "bias_correction": p.bias_correction,
    }
    if name == "uniform":
        return Uniform()
    if name == "curiosity":
        return Curiosity()
    if name == "gmc":
        return GMC(**moments)
    if name == "gmc_hard":
        return GMC(**moments, gate="hard", gate_level=p.gate_level)
    if name == "gmc_soft":
        return GMC(**moments, gate="soft", gate_level=p.gate_level)
    if name == "dot":
        return DotProduct(**moments, over=p.dot_over, scale=p.dot_scale)
    if name == "cosine":
        return Cosine(**moments, over=p.cosine_over, against=p.cosine_against, scale=p.cosine_scale)
    if name == "projection":
        return Projection(**moments)
    if name == "norm_all":
        return NormAll(norm=p.norm, unit=p.norm_unit, scale=p.norm_all_scale)
    if name == "norm_last":
        return NormLast(norm=p.norm, unit=p.norm_unit, part=p.norm_last_part, scale=p.norm_last_scale)
    if name == "delta_loss":
        return DeltaLoss(
            groups=arms, window=p.delta_window, absolute=p.delta_absolute, scale=p.delta_scale, empty=p.delta_empty
        )
    raise SignalError(f"expected a signal out of {', '.join(NAMES)}, got {name!r}")
