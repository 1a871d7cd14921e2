"""Moving averages of the batch gradient and of its square."""

from headway.moments.averages import Decay, Moments
from headway.moments.flat import Flat

__all__ = ["Decay", "Flat", "Moments"]
