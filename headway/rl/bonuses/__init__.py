"""Bonuses: what an agent's curiosity is about. Importing this package registers those of headway."""

from headway.rl.bonuses.bonus import BONUSES, Memory, Prediction, Predictor, register_bonus, register_predictor
from headway.rl.bonuses.counts import Counts
from headway.rl.bonuses.disagreement import Disagreement
from headway.rl.bonuses.dropout import Dropout
from headway.rl.bonuses.e3b import E3B
from headway.rl.bonuses.episodic import EpisodicMemory
from headway.rl.bonuses.forward import Forward
from headway.rl.bonuses.gain import Gain
from headway.rl.bonuses.iac import IAC
from headway.rl.bonuses.icm import ICM
from headway.rl.bonuses.multistep import MultiStep
from headway.rl.bonuses.ngu import NGU
from headway.rl.bonuses.noveld import NovelD
from headway.rl.bonuses.re3 import RE3
from headway.rl.bonuses.ride import RIDE
from headway.rl.bonuses.rnd import RND
from headway.rl.bonuses.vime import VIME

__all__ = [
    "BONUSES",
    "E3B",
    "IAC",
    "ICM",
    "NGU",
    "RE3",
    "RIDE",
    "RND",
    "VIME",
    "Counts",
    "Disagreement",
    "Dropout",
    "EpisodicMemory",
    "Forward",
    "Gain",
    "Memory",
    "MultiStep",
    "NovelD",
    "Prediction",
    "Predictor",
    "register_bonus",
    "register_predictor",
]
