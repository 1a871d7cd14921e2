"""Selection: choosing what to learn from next, by its scores."""

from headway.selection.actor import Actor, ActorConfig
from headway.selection.mixture import Mixture
from headway.selection.networks import PlainLogits, perceptron
from headway.selection.pools import Pools
from headway.selection.rules import MultiplicativeWeights, PolicyGradient
from headway.selection.sampler import SourceSampler, lag
from headway.selection.sources import Sources, Tagged

__all__ = [
    "Actor",
    "ActorConfig",
    "Mixture",
    "MultiplicativeWeights",
    "PlainLogits",
    "PolicyGradient",
    "Pools",
    "SourceSampler",
    "Sources",
    "Tagged",
    "lag",
    "perceptron",
]
