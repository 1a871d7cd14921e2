"""The command of the dummy experiment on a slow file system: every write, rename, link and sync takes its time.

Worker processes import this module again, so that they are slow too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.runs import dummy_cli

SECONDS = 0.02
SLOW = ("fsync", "replace", "rename", "link", "unlink", "mkdir", "utime")


def slowly(act: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **options: Any) -> Any:
        time.sleep(SECONDS)
        return act(*arguments, **options)

    return wrapped


if __name__ in ("__main__", "__mp_main__"):
    for name in SLOW:
        setattr(os, name, slowly(getattr(os, name)))

if __name__ == "__main__":
    sys.exit(dummy_cli.main(sys.argv[1:]))
