"""The signals of the controlled study by name, made by the choices of a protocol. Users add their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headway import signals
from headway.errors import SignalError
from headway.registry import Registry
from headway.signals import Signal
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


def _moments(p: Protocol) -> dict[str, Any]:
    return {
        "beta": p.beta if p.beta_v is None else (p.beta, p.beta_v),
        "floor": p.floor,
        "unit": p.floor_unit,
        "bias_correction": p.bias_correction,
    }


_OWN: Mapping[str, MakeSignal] = {
    "uniform": lambda p, arms: signals.Uniform(),
    "curiosity": lambda p, arms: signals.Curiosity(),
    "gmc": lambda p, arms: signals.GMC(**_moments(p)),
    "norm_last": lambda p, arms: signals.NormLast(
        norm=p.norm, unit=p.norm_unit, part=p.norm_last_part, scale=p.norm_last_scale
    ),
    "norm_all": lambda p, arms: signals.NormAll(norm=p.norm, unit=p.norm_unit, scale=p.norm_all_scale),
    "delta_loss": lambda p, arms: signals.DeltaLoss(
        groups=arms, window=p.delta_window, absolute=p.delta_absolute, scale=p.delta_scale, empty=p.delta_empty
    ),
    "dot": lambda p, arms: signals.DotProduct(**_moments(p), over=p.dot_over, scale=p.dot_scale),
    "cosine": lambda p, arms: signals.Cosine(
        **_moments(p), over=p.cosine_over, against=p.cosine_against, scale=p.cosine_scale
    ),
    "projection": lambda p, arms: signals.Projection(**_moments(p)),
    "gmc_hard": lambda p, arms: signals.GMC(**_moments(p), gate="hard", gate_level=p.gate_level),
    "gmc_soft": lambda p, arms: signals.GMC(**_moments(p), gate="soft", gate_level=p.gate_level),
}
for _name, _make in _OWN.items():
    register_signal(_name)(_make)
