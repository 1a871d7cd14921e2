"""A store with twenty good runs and one of each hostile kind; `python -m tests.analysis.hostile` measures the commands.

Every hostile file agrees with the sums in its run's status, as if the run had written it.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headway.runs import FileSum, RunStore
from tests.analysis.stores import controlled_rows, controlled_spec, controlled_specs, finish

EPOCHS = 6
GOOD = controlled_specs(
    conditions=("noise",), methods=("gmc", "uniform", "curiosity", "norm_all"), seeds=5, epochs=EPOCHS
)
ROOT = Path(__file__).parents[2]
COMMANDS = {
    "status": ("status",),
    "claims": ("claims", "--brief"),
    "export": ("export", "--out", "{out}/export.parquet"),
    "figures": ("figures", "--out", "{out}/figures", "--format", "png", "--only", "average"),
    "report": ("report", "--out", "{out}/report", "--formats"),
}
"""The commands that read a store, as they are called."""


def plant(store: RunStore, seed: int, name: str, data: bytes) -> str:
    """A finished run of GMC in which one file is another; returns the id."""
    spec = controlled_spec(seed=seed, epochs=EPOCHS)
    run_id = finish(store, spec)
    folder = store.folder(run_id)
    (folder / name).write_bytes(data)
    status = json.loads((folder / "status.json").read_text())
    status["files"][name] = vars(FileSum.of(data))
    (folder / "status.json").write_text(json.dumps(status))
    return run_id


def parquet_of(seed: int, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Metrics of a run, whatever they hold."""
    first = next(batches)
    run_id = controlled_spec(seed=seed, epochs=EPOCHS).run_id
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, first.schema.with_metadata({"headway.run_id": run_id})) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def rows_with(name: str, values: pa.Array) -> Iterator[pa.RecordBatch]:
    """The rows of a good run, but for one column."""
    rows = controlled_rows(controlled_spec(epochs=EPOCHS))
    columns = {key: pa.array([row[key] for row in rows]) for key in rows[0]} | {name: values}
    yield pa.RecordBatch.from_pydict(columns)


def one_long_list(length: int = 630_000) -> Iterator[pa.RecordBatch]:
    """As many rows as one of them has values: a rectangle around them takes terabytes."""
    lengths = np.zeros(length, np.int64)
    lengths[0] = length
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    yield pa.RecordBatch.from_pydict({"test_loss": pa.ListArray.from_arrays(offsets, np.ones(length))})


def very_many(values: int, at_once: int = 1_000_000) -> Iterator[pa.RecordBatch]:
    """The same value again and again, in a list, which takes next to no room."""
    lists = pa.ListArray.from_arrays(np.array([0, at_once], np.int32), np.ones(at_once))
    batch = pa.RecordBatch.from_pydict({"test_loss": lists})
    for _ in range(values // at_once):
        yield batch


def write_hostile_store(root: Path, values: int = 12_000_000, with_hostile: bool = True) -> dict[str, str]:
    """Write the store; returns the ids of the hostile runs, or the names of the hostile files, by what is wrong."""
    store = RunStore(root)
    for spec in GOOD:
        finish(store, spec)
    if not with_hostile:
        return {}
    long = pa.array(["x" * 50_000_000] * EPOCHS)
    words = pa.array([["many", "words"]] * EPOCHS)
    hostile = {
        "deep": plant(store, 100, "provenance.json", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        "not so deep": plant(store, 101, "provenance.json", b'{"a":' * 200 + b"1" + b"}" * 200),
        "long note": plant(store, 102, "provenance.json", json.dumps({"note": "x" * 50_000_000}).encode()),
        "one long list": plant(store, 103, "metrics.parquet", parquet_of(103, one_long_list())),
        "very many values": plant(store, 104, "metrics.parquet", parquet_of(104, very_many(values))),
        "text for numbers": plant(
            store, 105, "metrics.parquet", parquet_of(105, rows_with("policy_entropy", pa.array(["x"] * EPOCHS)))
        ),
        "numbers for lists": plant(
            store, 106, "metrics.parquet", parquet_of(106, rows_with("test_loss", pa.array([1.0] * EPOCHS)))
        ),
        "words for lists": plant(store, 107, "metrics.parquet", parquet_of(107, rows_with("test_loss", words))),
        "long text": plant(store, 108, "metrics.parquet", parquet_of(108, rows_with("word", long))),
    }
    if hasattr(os, "mkfifo"):
        for name in ("x.parquet", "x.csv"):
            os.mkfifo(root / name)
            os.mkfifo(store.folder(GOOD[0].run_id) / name)
        hostile["pipe"] = "x.parquet"
    return hostile


def call(command: str, store: Path, out: Path) -> tuple[subprocess.CompletedProcess[str], float, float]:
    """Call a command as a user does; returns what came of it, its seconds of work and its greatest memory in MB."""
    name, *options = COMMANDS[command]
    words = [sys.executable, "-m", "tests.analysis.hostile", name, str(store)]
    words += [option.format(out=out) for option in options]
    before = _work()
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    return result, _work() - before, float(result.stderr.rpartition("MEMORY ")[2] or "nan")


def _work() -> float:
    """Seconds that child processes have worked: on a busy machine a clock would measure the others."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(values: int) -> dict[str, Any]:
    """What the hostile runs cost each command, in seconds and MB, beside the good ones alone."""
    with tempfile.TemporaryDirectory() as folder:
        good, bad = Path(folder) / "good", Path(folder) / "bad"
        write_hostile_store(good, with_hostile=False)
        write_hostile_store(bad, values)
        found = {}
        for command in COMMANDS:
            (_, seconds, memory), (_, more, larger) = (call(command, place, Path(folder)) for place in (good, bad))
            found[command] = {"seconds": round(more - seconds, 2), "MB": round(larger - memory)}
        return found


def main() -> int:
    """Call `headway` and say how much memory it took; without arguments, measure all commands."""
    if len(sys.argv) == 1:
        for command, costs in measure(1_200_000_000).items():
            print(f"{command:8} {costs['seconds']:6.2f} s of work more, {costs['MB']} MB more")
        return 0
    from headway.commands.main import main as headway

    code = headway(sys.argv[1:])
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())  # rusage counts the parent's, too
    print(f"MEMORY {int(peak[1]) / 1024 if peak else 0:.0f}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
