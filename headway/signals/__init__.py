"""Signals: ways to score the samples of a batch."""

from headway.signals.base import BaseSignal, Batch, Plan, Scope, Signal, Unit, Values, Where
from headway.signals.curves import Learnability, Rate
from headway.signals.gmc import GMC, Cosine, DotProduct, MomentSignal, Projection
from headway.signals.groups import GroupGMC
from headway.signals.head import HeadMeter
from headway.signals.losses import Curiosity, DeltaLoss, Uniform
from headway.signals.norms import NormAll, NormLast
from headway.signals.reference import Alignment, Excess, Reference, prediction_gain

__all__ = [
    "GMC",
    "Alignment",
    "BaseSignal",
    "Batch",
    "Cosine",
    "Curiosity",
    "DeltaLoss",
    "DotProduct",
    "Excess",
    "GroupGMC",
    "HeadMeter",
    "Learnability",
    "MomentSignal",
    "NormAll",
    "NormLast",
    "Plan",
    "Projection",
    "Rate",
    "Reference",
    "Scope",
    "Signal",
    "Uniform",
    "Unit",
    "Values",
    "Where",
    "prediction_gain",
]
