"""Finding a browser for the tests."""

from __future__ import annotations

import importlib.util
import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Programs that will do, the first that is there."""


def find_chromium() -> str | None:
    """The path of a Chromium that is installed, or None; the variable HEADWAY_CHROMIUM names another one."""
    if importlib.util.find_spec("playwright") is None:
        return None
    return os.environ.get("HEADWAY_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
