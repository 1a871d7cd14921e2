"""Selection: choosing what to learn from next, by its scores."""

from headway.selection.actor import Actor, ActorConfig
from headway.selection.networks import PlainLogits, perceptron
from headway.selection.pools import Pools

__all__ = ["Actor", "ActorConfig", "PlainLogits", "Pools", "perceptron"]
