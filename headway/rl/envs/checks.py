"""Checks of what users pass to environments. They need no optional package."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import EnvError


def check_num_envs(num_envs: object) -> int:
    """Check a number of environments.

    Raises:
        EnvError: it is not an integer of 1 or more.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
        raise EnvError(f"expected num_envs to be an integer of 1 or more, got {num_envs!r}")
    return int(num_envs)


def check_seed(seed: object) -> int:
    """Check a seed.

    Raises:
        EnvError: it is not an integer of 0 or more.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise EnvError(f"expected a seed that is an integer of 0 or more, got {seed!r}")
    return int(seed)


def check_actions(actions: Any, num_envs: int, count: int) -> NDArray[np.intp]:
    """Check the actions of a step.

    Args:
        actions: what should be integers [num_envs].
        num_envs: the number of environments.
        count: the number of actions that there are.

    Raises:
        EnvError: they have another shape or type, or one is out of range.
    """
    given = np.asarray(actions)
    if given.shape != (num_envs,):
        raise EnvError(f"expected actions of shape [{num_envs}], one for each environment, got {list(given.shape)}")
    if given.dtype.kind not in "iu":
        raise EnvError(f"expected integer actions, got {given.dtype}; choose them by argmax or by sampling")
    if given.min() < 0 or given.max() >= count:
        wrong = given[(given < 0) | (given >= count)]
        raise EnvError(f"expected actions from 0 to {count - 1}, got {wrong[0]}")
    return given.astype(np.intp, copy=False)


def check_reset_mask(mask: Any, num_envs: int) -> NDArray[np.intp]:
    """The environments that a reset mask names; all if there is none.

    Raises:
        EnvError: it is not a boolean array [num_envs] with a True in it.
    """
    if mask is None:
        return np.arange(num_envs)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,):
        got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise EnvError(f"expected options['reset_mask'] to be a boolean array [{num_envs}], got {got}")
    if not mask.any():
        raise EnvError("expected at least one environment in options['reset_mask'], got none")
    return np.flatnonzero(mask)
