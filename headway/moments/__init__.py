"""Moving averages of the batch gradient and of its square."""

from headway.moments.averages import Decay, Moments
from headway.moments.flat import WHOLE, Flat, Parts

__all__ = ["WHOLE", "Decay", "Flat", "Moments", "Parts"]
