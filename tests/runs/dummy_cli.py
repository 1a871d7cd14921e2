"""`headway run dummy`: the dummy experiment, as `headway run` runs the real ones."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from headway.commands import main as cli
from headway.runs import RunSpec
from headway.runs import ray_cluster as cluster
from headway.runs.experiments import register_experiment
from headway.study.requests import REQUESTS, Request, names, option, register_request, seeds, whole, word
from tests.runs import dummy


@dataclass(frozen=True, kw_only=True)
class DummyRequest(Request):
    """Runs that train nothing."""

    method: tuple[str, ...] = option(("good",), names, "what happens to a run")
    seeds: tuple[int, ...] = option((0,), seeds, "seeds")
    steps: int = option(3, whole, "length of a run")
    folder: str | None = option(None, word, "where runs leave a line")
    patience: float | None = option(None, lambda name, value: float(value), "of the launcher for Ray")

    def expand(self) -> list[RunSpec]:
        if self.patience is not None:
            cluster.PATIENCE = self.patience
        folder = None if self.folder is None else Path(self.folder)
        return [dummy.spec_of(m, seed, self.steps, folder) for m in self.method for seed in self.seeds]


def main(arguments: list[str]) -> int:
    register_experiment(dummy.NAME, dummy.SLOW_MODULE if dummy.SLOW_FOLDER in os.environ else dummy.MODULE)
    if dummy.NAME not in REQUESTS.names():
        register_request(dummy.NAME)(DummyRequest)
    return cli.main(["run", dummy.NAME, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
