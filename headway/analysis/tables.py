"""The former name of `headway.analysis.comparison`."""

from headway.analysis.comparison import *  # noqa: F403
from headway.analysis.comparison import uniform_sources as lenders  # noqa: F401
