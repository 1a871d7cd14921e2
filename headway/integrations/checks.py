"""Checks of arguments that several adapters have."""

from __future__ import annotations

import math
from typing import Any

from headway.errors import MethodError
from headway.rl.methods import parse_method
from headway.rl.reward import IntrinsicReward


def check_number(name: str, value: Any, wanted: str = "a finite number") -> None:
    """Refuse what is no finite number, text that looks like one too.

    Raises:
        MethodError: it names the argument.
    """
    try:
        is_fine = not isinstance(value, str | bytes) and math.isfinite(value)
    except (TypeError, ValueError):
        is_fine = False
    if not is_fine:
        raise MethodError(f"{name}: expected {wanted}, got {value!r}")


def check_method(method: Any) -> None:
    """Refuse a method that there is not, or that pays nothing, before anything is made of it.

    Raises:
        MethodError: for an unknown name it lists the names.
    """
    if isinstance(method, IntrinsicReward):
        return
    if not isinstance(method, str):
        raise MethodError(f'expected a method such as "icm+gmc" or an IntrinsicReward, got {method!r}')
    if parse_method(method) is None:
        raise MethodError(f"expected a method that pays an intrinsic reward, got {method!r}")
