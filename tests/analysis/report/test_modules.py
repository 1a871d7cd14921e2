"""How much of the analysis a small report takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headway.runs import RunStore
from tests.analysis.stores import controlled_specs, finish_all

MOST = 20


@pytest.mark.slow
def test_a_report_on_one_run_loads_few_modules_of_the_analysis(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    finish_all(store, controlled_specs(conditions=["noise"], methods=("gmc",), seeds=1, epochs=3))
    code = (
        "import sys\n"
        "from headway.analysis.report import write_report\n"
        "write_report(sys.argv[1], sys.argv[2], formats=['svg'])\n"
        "print(*sorted(name for name in sys.modules if name.startswith('headway.analysis')), sep='\\n')\n"
    )
    command = [sys.executable, "-c", code, str(store.root), str(tmp_path / "report")]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert len(loaded) <= MOST, loaded
