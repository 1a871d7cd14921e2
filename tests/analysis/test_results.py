from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.analysis import ResultsReader, load_results, write_lot
from headway.errors import StoreError
from headway.runs import RunStore, State
from tests.analysis.stores import (
    controlled_rows,
    controlled_spec,
    controlled_specs,
    finish,
    finish_all,
    start,
    write_mixed_store,
)


def test_a_mixed_store(tmp_path: Path) -> None:
    write_mixed_store(tmp_path, epochs=4, seeds=2)
    results = load_results(tmp_path)
    print(results.counts(), results.problems)
    print(results.protocols())
    for group, members in results.groups().items():
        print(group, len(members), list(members.methods()))
