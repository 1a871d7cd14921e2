"""Campaigns of the dummy experiment in processes of their own, and what must hold after each fault.

Nothing is lost that was reported as done, no number is wrong, the rest goes on, and a message says what happened.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headway.runs import RunSpec, RunStore, State
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.experiments import Context
from headway.runs.launchers import InProcess
from tests.runs import dummy
from tests.runs.conftest import Recorder
from tests.runs.dummy import spec_of

ROOT = Path(__file__).parents[2]
MODULE = "tests.runs.dummy_cli"
_DONE = re.compile(r"^(?:\w+ )?none (\S+) seed (\d+): done$", re.MULTILINE)


def start(*arguments: object, module: str = MODULE) -> subprocess.Popen[str]:
    """Start a campaign in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Output:
    """What a campaign has written so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.text = ""

    def read_until(self, words: str, times: int = 1) -> str:
        """Read lines until one with these words has come so many times; return the last."""
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            self.text += line
            assert line, f"expected {words!r}, got the end: {self.text} {self.process.communicate()}"
            times -= words in line
            if not times:
                return line

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and what went wrong in words."""
        rest, errors = self.process.communicate(timeout=240)
        self.text += rest
        return self.process.returncode, errors

    def reported_done(self) -> set[tuple[str, int]]:
        """Method and seed of the runs that were reported as done."""
        return {(method, int(seed)) for method, seed in _DONE.findall(self.text)}


def run_to_end(*arguments: object, module: str = MODULE) -> tuple[int, str, Output]:
    """Carry out a campaign; return the exit code, the errors in words, and the output."""
    output = Output(start(*arguments, module=module))
    return *output.end(), output


@cache
def expected(spec: RunSpec) -> dict[str, Any]:
    """The metrics of a run that nothing happened to, from one with the method "good": the numbers are the same."""
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(folder)
        twin = spec_of("good", spec.seed, int(str(spec.params["steps"])))
        run = store.lock(twin)
        assert run is not None
        with run:
            dummy.run(run, Context())
        return store.metrics(twin.run_id)


def check_done(store: RunStore, specs: Sequence[RunSpec]) -> None:
    """Runs are done, whole, and have the right numbers."""
    for spec in specs:
        assert store.record(spec.run_id).state is State.DONE, spec
        assert store.problems(spec.run_id) == []
        assert store.metrics(spec.run_id) == expected(spec), spec


def check_aftermath(
    store: RunStore, specs: Sequence[RunSpec], output: Output | None = None, failed: Sequence[RunSpec] = ()
) -> None:
    """What was reported as done is so; then the same campaign is carried out in peace, and everything is right."""
    reported = output.reported_done() if output else set()
    check_done(store, [spec for spec in specs if (spec.method, spec.seed) in reported])
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dummy, "WAITS", False)
        progress = run_campaign(Campaign(specs, store), InProcess(), recorder)
    assert {end.run_id for end in progress.failures()} == {spec.run_id for spec in failed}
    assert progress.is_complete()
    check_done(store, [spec for spec in specs if spec not in failed])
    for spec in specs:
        left = [path.name for path in (store.root / spec.run_id).iterdir() if path.name.endswith(".tmp")]
        assert left == []
