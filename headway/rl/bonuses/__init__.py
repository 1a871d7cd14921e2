"""Bonuses: what an agent's curiosity is about. Importing this package registers those of headway."""

from headway.rl.bonuses.bonus import BONUSES, Memory, Prediction, Predictor, register_bonus, register_predictor
from headway.rl.bonuses.counts import Counts
from headway.rl.bonuses.forward import Forward
from headway.rl.bonuses.icm import ICM
from headway.rl.bonuses.rnd import RND

__all__ = [
    "BONUSES",
    "ICM",
    "RND",
    "Counts",
    "Forward",
    "Memory",
    "Prediction",
    "Predictor",
    "register_bonus",
    "register_predictor",
]
