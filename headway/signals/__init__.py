"""Signals: ways to score the samples of a batch."""

from headway.signals.base import BaseSignal, Batch, Plan, Scope, Signal, Unit, Values, Where
from headway.signals.gmc import GMC, Cosine, DotProduct, MomentSignal, Projection
from headway.signals.losses import Curiosity, DeltaLoss, Uniform
from headway.signals.norms import NormAll, NormLast

__all__ = [
    "GMC",
    "BaseSignal",
    "Batch",
    "Cosine",
    "Curiosity",
    "DeltaLoss",
    "DotProduct",
    "MomentSignal",
    "NormAll",
    "NormLast",
    "Plan",
    "Projection",
    "Scope",
    "Signal",
    "Uniform",
    "Unit",
    "Values",
    "Where",
]
