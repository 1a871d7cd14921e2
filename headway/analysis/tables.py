"""The former name of `headway.analysis.comparison`."""

from headway.analysis.comparison import *  # noqa: F403
