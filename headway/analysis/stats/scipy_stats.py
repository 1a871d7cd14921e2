"""Where SciPy is imported: when it is first needed, since it takes a second and is an extra."""

from __future__ import annotations

import importlib
from typing import Any

from headway.errors import MissingExtraError


def scipy_stats() -> Any:
    """The module scipy.stats.

    Raises:
        MissingExtraError: SciPy is not installed.
    """
    try:
        return importlib.import_module("scipy.stats")
    except ImportError as error:
        raise MissingExtraError("scipy", "report") from error
