"""Statistics over seeds: intervals, tests, ratios, aggregates over several conditions, and times with censoring."""

from headway.analysis.stats.aggregates import (
    Profile,
    iqm,
    performance_profile,
    probability_of_improvement,
    relative_iqm,
)
from headway.analysis.stats.comparisons import Welch, holm, stars, welch, why_untested
from headway.analysis.stats.intervals import Estimate, contrast, ratio, t_bounds, t_interval, unknown, unpaired_ratio
from headway.analysis.stats.survival import Survival, survival, time_to_threshold

__all__ = [
    "Estimate",
    "Profile",
    "Survival",
    "Welch",
    "contrast",
    "holm",
    "iqm",
    "performance_profile",
    "probability_of_improvement",
    "ratio",
    "relative_iqm",
    "stars",
    "survival",
    "t_bounds",
    "t_interval",
    "time_to_threshold",
    "unknown",
    "unpaired_ratio",
    "welch",
    "why_untested",
]
