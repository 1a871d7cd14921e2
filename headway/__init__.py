"""headway measures learning progress: a score for every sample, from the backward pass that you do anyway."""

from headway.errors import HeadwayError
from headway.grads import Reduction, register_rule, unregister_rule
from headway.meter import Meter
from headway.moments import Decay, Moments
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

__version__ = "0.1.0"

__all__ = [
    "GMC",
    "Cosine",
    "Curiosity",
    "Decay",
    "DeltaLoss",
    "DotProduct",
    "HeadwayError",
    "Meter",
    "Moments",
    "NormAll",
    "NormLast",
    "Projection",
    "Reduction",
    "Signal",
    "Uniform",
    "__version__",
    "register_rule",
    "unregister_rule",
]
