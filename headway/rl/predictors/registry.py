"""Predictors by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.predictors.base import Predictor
from headway.rl.registry import Registry

MakePredictor = Callable[[Any, Any, IntrinsicConfig, torch.Generator], Predictor]
"""Makes a predictor from observation space, action space, settings and a generator for its weights."""

PREDICTORS: Registry[MakePredictor] = Registry("predictor")
_Make = TypeVar("_Make", bound=MakePredictor)


def register_predictor(name: str) -> Callable[[_Make], _Make]:
    """Add a predictor: a class, or a function that makes one.

    Args:
        name: what methods call it; letters, digits, dashes and underscores.

    Raises:
        MethodError: the name is taken or not valid.
    """
    return PREDICTORS.register(name)
