"""headway measures learning progress: a score for every sample, from the backward pass that you do anyway."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.errors import HeadwayError
    from headway.grads import Reduction, register_rule, unregister_rule
    from headway.grads.every import AutoEvery
    from headway.grads.segments import segments
    from headway.meter import Meter
    from headway.moments import Decay, Moments
    from headway.selection import LevelSampler, PrioritizedSampler, SourceSampler, SourceStream
    from headway.signals import (
        GMC,
        Alignment,
        Cosine,
        Curiosity,
        DeltaLoss,
        DotProduct,
        Excess,
        GroupGMC,
        HeadMeter,
        Learnability,
        NormAll,
        NormLast,
        Projection,
        Rate,
        Reference,
        Signal,
        Uniform,
        prediction_gain,
    )
    from headway.telemetry import SourceMonitor

__version__ = "0.1.0"

__all__ = [
    "GMC",
    "Alignment",
    "AutoEvery",
    "Cosine",
    "Curiosity",
    "Decay",
    "DeltaLoss",
    "DotProduct",
    "Excess",
    "GroupGMC",
    "HeadMeter",
    "HeadwayError",
    "Learnability",
    "LevelSampler",
    "Meter",
    "Moments",
    "NormAll",
    "NormLast",
    "PrioritizedSampler",
    "Projection",
    "Rate",
    "Reduction",
    "Reference",
    "Signal",
    "SourceMonitor",
    "SourceSampler",
    "SourceStream",
    "Uniform",
    "__version__",
    "prediction_gain",
    "register_rule",
    "segments",
    "unregister_rule",
]

_HOMES = {
    "HeadwayError": "headway.errors",
    "Reduction": "headway.grads",
    "register_rule": "headway.grads",
    "unregister_rule": "headway.grads",
    "AutoEvery": "headway.grads.every",
    "segments": "headway.grads.segments",
    "Meter": "headway.meter",
    "Decay": "headway.moments",
    "Moments": "headway.moments",
    "SourceMonitor": "headway.telemetry",
    "LevelSampler": "headway.selection",
    "PrioritizedSampler": "headway.selection",
    "SourceSampler": "headway.selection",
    "SourceStream": "headway.selection",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: `headway status` need not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    with warnings.catch_warnings():  # without NumPy, which headway does not need, torch warns when it is imported
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        value = getattr(import_module(_HOMES.get(name, "headway.signals")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
