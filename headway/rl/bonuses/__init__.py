"""Bonuses: what an agent's curiosity is about. Importing this package registers those of headway.

bonus       what predictors and memories are, and the registry
forward     forward models: Forward, Gain, VIME, and several that disagree: Disagreement, Dropout
icm         features that actions shape: ICM, MultiStep
rnd         random networks: RND, RE3
episodic    memories of single episodes: EpisodicMemory, E3B, NGU
counts      visits: Counts, and those of single episodes: RIDE, NovelD
iac         progress by regions: IAC
"""

from headway.rl.bonuses.bonus import BONUSES, Memory, Prediction, Predictor, register_bonus, register_predictor
from headway.rl.bonuses.counts import RIDE, Counts, NovelD
from headway.rl.bonuses.episodic import E3B, NGU, EpisodicMemory
from headway.rl.bonuses.forward import VIME, Disagreement, Dropout, Forward, Gain
from headway.rl.bonuses.iac import IAC
from headway.rl.bonuses.icm import ICM, MultiStep
from headway.rl.bonuses.rnd import RE3, RND

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
