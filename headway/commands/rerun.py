"""Running given specs again, for whoever compares the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.commands.campaigns import FAILED, INTERRUPTED
from headway.data import load
from headway.runs import RunSpec, RunStore
from headway.runs.campaign import Campaign, make_launcher, run_campaign
from headway.runs.context import Context
from headway.runs.experiments import needed_datasets
from headway.runs.output import complain


def fingerprints(specs: Sequence[RunSpec], data_dir: Path | None) -> dict[str, str]:
    """Have all datasets of these runs on this machine: name -> fingerprint of the copy that is used.

    Raises:
        DataError: one is not there and cannot be fetched.
    """
    return {name: load(name, data_dir).fingerprint for name in needed_datasets(specs)}


def repeat(specs: Sequence[RunSpec], out: Path, data_dir: Path | None, device: str, workers: int | None) -> int:
    """Carry out runs in a store of their own and return the exit code; what failed is told."""
    launcher = None if workers is None else make_launcher(workers)
    tally = run_campaign(Campaign(specs, RunStore(out), Context(data_dir, device)), launcher)
    for end in tally.failures():
        complain(f"headway: {end.run_id} failed: {end.message}")
    if tally.failures():
        return FAILED
    return 0 if tally.is_complete() else INTERRUPTED
