from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def quick_disk() -> Iterator[None]:
    """Made-up runs need not survive a power cut, and waiting for the disk takes most of the time of writing them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
