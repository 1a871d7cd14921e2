"""What a protocol says is what its signals are."""

from __future__ import annotations

import dataclasses

import pytest

from headway.signals import GMC, Cosine, DeltaLoss, DotProduct, NormAll, NormLast, Projection, Signal
from headway.study.protocols.classification import Protocol
from headway.study.signals import SIGNALS


@pytest.mark.parametrize(
    ("name", "released", "paper"),
    [
        ("gmc", GMC(unit="batch"), GMC(bias_correction=False)),
        ("gmc_hard", GMC(unit="batch", gate="hard"), GMC(bias_correction=False, gate="hard")),
        ("gmc_soft", GMC(unit="batch", gate="soft"), GMC(bias_correction=False, gate="soft")),
        ("dot", DotProduct(unit="batch", over="tensor", scale=5.0), DotProduct(bias_correction=False)),
        (
            "cosine",
            Cosine(unit="batch", over="tensor", against="m/v", scale=50.0),
            Cosine(bias_correction=False),
        ),
        ("projection", Projection(unit="batch"), Projection(bias_correction=False)),
        ("norm_all", NormAll(norm="l2-squared", unit="batch", scale=1e4), NormAll(scale=0.0011)),
        ("norm_last", NormLast(norm="l2-squared", unit="batch", part="bias", scale=1e5), NormLast(scale=0.011)),
        (
            "delta_loss",
            DeltaLoss(groups=4, window=None, absolute=True, scale=1e5, empty="stop"),
            DeltaLoss(groups=4, window=1000, scale=52000.0),
        ),
    ],
)
def test_signals_are_those_of_the_protocol(name: str, released: Signal, paper: Signal) -> None:
    assert SIGNALS.find(name)(Protocol.released(), 4) == released
    assert SIGNALS.find(name)(Protocol.paper(), 4) == paper


def test_constants_of_gmc_come_from_the_protocol() -> None:
    protocol = dataclasses.replace(Protocol.paper(), beta=0.9, beta_v=0.99, floor=1e-3, gate_level=2.0)
    with pytest.warns(UserWarning, match="differ"):
        signal = SIGNALS.find("gmc_hard")(protocol, 4)
    assert isinstance(signal, GMC)
    assert (signal.beta, signal.floor, signal.gate_level) == ((0.9, 0.99), 1e-3, 2.0)
