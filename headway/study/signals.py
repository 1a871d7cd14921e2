"""The signals of the controlled study by name, made by the choices of a protocol. Users add their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from headway.errors import SignalError
from headway.registry import Registry
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
from headway.study.protocols.classification import Protocol

MakeSignal: TypeAlias = Callable[[Protocol, int], Signal]
"""Makes a signal of the protocol and the number of arms."""
SIGNALS: Registry[MakeSignal] = Registry("signal", SignalError)
SIX = ("uniform", "curiosity", "gmc", "norm_last", "norm_all", "delta_loss")
"""The six signals that the study compares."""


def register_signal(name: str) -> Callable[[MakeSignal], MakeSignal]:
    """Add a signal: a function that makes one of the protocol and the number of arms, or a class with such arguments.

    Args:
        name: what `headway run controlled --signal` calls it; letters, digits, dashes and underscores.

    Raises:
        SignalError: the name is taken or not valid.
    """
    return SIGNALS.register(name)


def make_signal(name: str, protocol: Protocol, arms: int) -> Signal:
    """The signal of that name.

    Raises:
        SignalError: there is none; the message lists them.
    """
    return SIGNALS.find(name)(protocol, arms)


def _moments(p: Protocol) -> dict[str, Any]:
    return {
        "beta": p.beta if p.beta_v is None else (p.beta, p.beta_v),
        "floor": p.floor,
        "unit": p.floor_unit,
        "bias_correction": p.bias_correction,
    }


@register_signal("uniform")
def _uniform(p: Protocol, arms: int) -> Signal:
    return Uniform()


@register_signal("curiosity")
def _curiosity(p: Protocol, arms: int) -> Signal:
    return Curiosity()


@register_signal("gmc")
def _gmc(p: Protocol, arms: int) -> Signal:
    return GMC(**_moments(p))


@register_signal("norm_last")
def _norm_last(p: Protocol, arms: int) -> Signal:
    return NormLast(norm=p.norm, unit=p.norm_unit, part=p.norm_last_part, scale=p.norm_last_scale)


@register_signal("norm_all")
def _norm_all(p: Protocol, arms: int) -> Signal:
    return NormAll(norm=p.norm, unit=p.norm_unit, scale=p.norm_all_scale)


@register_signal("delta_loss")
def _delta_loss(p: Protocol, arms: int) -> Signal:
    return DeltaLoss(
        groups=arms, window=p.delta_window, absolute=p.delta_absolute, scale=p.delta_scale, empty=p.delta_empty
    )


@register_signal("dot")
def _dot(p: Protocol, arms: int) -> Signal:
    return DotProduct(**_moments(p), over=p.dot_over, scale=p.dot_scale)


@register_signal("cosine")
def _cosine(p: Protocol, arms: int) -> Signal:
    return Cosine(**_moments(p), over=p.cosine_over, against=p.cosine_against, scale=p.cosine_scale)


@register_signal("projection")
def _projection(p: Protocol, arms: int) -> Signal:
    return Projection(**_moments(p))


@register_signal("gmc_hard")
def _gmc_hard(p: Protocol, arms: int) -> Signal:
    return GMC(**_moments(p), gate="hard", gate_level=p.gate_level)


@register_signal("gmc_soft")
def _gmc_soft(p: Protocol, arms: int) -> Signal:
    return GMC(**_moments(p), gate="soft", gate_level=p.gate_level)
