"""Predictors by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from headway.errors import MethodError
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.predictors.base import Predictor

MakePredictor = Callable[[Any, Any, IntrinsicConfig, torch.Generator], Predictor]
"""Makes a predictor from observation space, action space, settings and a generator for its weights."""

_PREDICTORS: dict[str, MakePredictor] = {}
_Make = TypeVar("_Make", bound=MakePredictor)


def register_predictor(name: str) -> Callable[[_Make], _Make]:
    """Add a predictor: a class, or a function that makes one.

    Args:
        name: what methods call it; letters, digits, dashes and underscores.

    Raises:
        MethodError: the name is taken or not valid.
    """
    if name in _PREDICTORS:
        raise MethodError(f"expected a new name for a predictor, got {name!r} twice")
    if not name.replace("-", "_").isidentifier():
        raise MethodError(f"expected a name of letters, digits, dashes and underscores, got {name!r}")

    def add(make: _Make) -> _Make:
        _PREDICTORS[name] = make
        return make

    return add


def predictor_names() -> tuple[str, ...]:
    """The names of all predictors."""
    return tuple(_PREDICTORS)


def find_predictor(name: str) -> MakePredictor:
    """The predictor of that name.

    Raises:
        MethodError: there is none; the message lists them.
    """
    if name not in _PREDICTORS:
        raise MethodError(f"expected a predictor out of {', '.join(_PREDICTORS)}, got {name!r}")
    return _PREDICTORS[name]
