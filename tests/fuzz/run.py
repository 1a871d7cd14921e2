"""Lets atheris search for inputs that break a target: `python -m tests.fuzz.run TARGET [SECONDS] [CORPUS]`.

Inputs that widen the coverage are kept in CORPUS, if there is such a folder, and tried first the next time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris
import torch  # noqa: F401 - which cannot be imported any more once the search goes on

WATCHED = ["headway.runs", "headway.data", "headway.integrations", "headway.experiments"]


def main(name: str, seconds: int = 10, corpus: str = "") -> None:
    with atheris.instrument_imports(
        include=["headway.runs", "headway.data", "headway.integrations", "headway.experiments"]
    ):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        for index, seed in enumerate(target.seeds()):
            (Path(folder) / f"seed-{index}").write_bytes(seed)
        places = [corpus, folder] if corpus else [folder]
        limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=3000", "-verbosity=0"]
        longest = max(map(len, target.seeds()))
        atheris.Setup(["fuzz", *limits, f"-max_len={2 * longest}", f"-artifact_prefix={folder}/", *places], target.feed)
        atheris.Fuzz()  # ends the process


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in sys.argv[2:3]), *sys.argv[3:4])
