"""Selection: choosing what to learn from next, by its scores."""

from headway.selection.actor import Actor, ActorConfig
from headway.selection.draws import Pools
from headway.selection.levels import LevelSampler
from headway.selection.literature import ADO, EXP3S, PLR, TSCL, GroupDRO, SelfPaced
from headway.selection.mixture import Mixture
from headway.selection.networks import PlainLogits, perceptron
from headway.selection.prioritized import PrioritizedSampler, SumTree, select
from headway.selection.rules import MultiplicativeWeights, PolicyGradient
from headway.selection.sampler import SourceSampler, lag
from headway.selection.sources import Sources, Tagged
from headway.selection.stream import SourceStream

__all__ = [
    "ADO",
    "EXP3S",
    "PLR",
    "TSCL",
    "Actor",
    "ActorConfig",
    "GroupDRO",
    "LevelSampler",
    "Mixture",
    "MultiplicativeWeights",
    "PlainLogits",
    "PolicyGradient",
    "Pools",
    "PrioritizedSampler",
    "SelfPaced",
    "SourceSampler",
    "SourceStream",
    "Sources",
    "SumTree",
    "Tagged",
    "lag",
    "perceptron",
    "select",
]
