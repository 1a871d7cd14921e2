"""Statistics over seeds: intervals, tests, ratios, aggregates over several conditions, and times with censoring."""

from headway.analysis.stats.aggregates import (
    Profile,
    Survival,
    iqm,
    performance_profile,
    probability_of_improvement,
    relative_iqm,
    survival,
    time_to_threshold,
)
from headway.analysis.stats.intervals import (
    Estimate,
    Welch,
    contrast,
    holm,
    ratio,
    stars,
    t_bounds,
    t_interval,
    unknown,
    unpaired_ratio,
    welch,
    why_untested,
)

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
