"""Having the data of runs on this machine before the first run needs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.data import load
from headway.errors import DataError, UsageError
from headway.runs import RunSpec
from headway.runs.experiments import needed_datasets


def find_data(specs: Sequence[RunSpec], data_dir: Path | None, download: bool) -> str:
    """Look for the datasets of runs.

    Args:
        specs: the runs.
        data_dir: where datasets are looked for first.
        download: whether to download what is not there.

    Returns:
        what is not there, in words; empty if all is.

    Raises:
        UsageError: a batch would be larger than its dataset.
        DataError: a dataset cannot be had.
    """
    largest: dict[str, int] = {}
    for spec in specs:
        for name in needed_datasets([spec]):
            largest[name] = max(largest.get(name, 0), int(str(spec.protocol.get("batch_size", 0))))
    missing = []
    for name, batch in largest.items():
        try:
            images = len(load(name, data_dir, download=download).train.labels)
        except DataError:
            if download:
                raise
            missing.append(name)
            continue
        if batch > images:
            raise UsageError(f"batch_size: expected at most the {images} images of {name}, got {batch}")
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not on this machine yet" if missing else ""
