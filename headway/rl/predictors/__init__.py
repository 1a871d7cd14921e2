"""Predictors: what an agent's curiosity is about."""

from headway.rl.predictors.base import Observations, Prediction, Predictor
from headway.rl.predictors.forward import Forward
from headway.rl.predictors.icm import ICM
from headway.rl.predictors.registry import PREDICTORS, register_predictor
from headway.rl.predictors.rnd import RND

__all__ = [
    "ICM",
    "PREDICTORS",
    "RND",
    "Forward",
    "Observations",
    "Prediction",
    "Predictor",
    "register_predictor",
]
