"""How fast a run store is: `python benchmarks/runs.py [--runs 10000] [--root DIR]`.

Prints the time to add runs, to list them, and to take one-step runs from claim to end. Times depend on how
fast the disk syncs; nothing is asserted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headway.runs import Json, RunSpec, RunStore


def main() -> None:
    """Make a store in a temporary folder and time what a campaign does with it."""
    parser = argparse.ArgumentParser(description="times a run store")
    parser.add_argument("--runs", type=int, default=10_000, help="runs to list (default: 10000)")
    parser.add_argument("--steps", type=int, default=1_000, help="one-step runs to run (default: 1000)")
    parser.add_argument("--root", help="where to make the temporary store (default: the system's choice)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.root) as folder:
        store = RunStore(Path(folder) / "runs")
        specs = [_spec(seed) for seed in range(options.runs)]
        short = specs[: options.steps]
        _report("add", len(specs), lambda: store.add_all(specs))
        _report("claim, log, checkpoint, finish", len(short), lambda: _one_step_each(store, short))
        _report("skip what is done", len(short), lambda: [store.lock(spec) for spec in short])
        _report("status", len(specs), store.status)
        _report("metrics", len(short), lambda: [store.metrics(spec.run_id) for spec in short])


def _spec(seed: int) -> RunSpec:
    protocol: dict[str, Json] = {f"field_{i}": (0.001 * i, "text", True, i)[i % 4] for i in range(30)}
    params: dict[str, Json] = {"dataset": "mnist", "epochs": 100, "lr": 1e-3, "hidden": [256, 256]}
    return RunSpec(
        experiment="controlled", condition="noise", method="gmc", seed=seed, params=params, protocol=protocol
    )


def _one_step_each(store: RunStore, specs: list[RunSpec]) -> None:
    for spec in specs:
        run = store.lock(spec)
        assert run is not None
        with run:
            run.restore()
            run.log({"loss": 1.0, "arms": [0.25, 0.25, 0.25, 0.25]})
            run.progress(1, 1, {"loss": 1.0})
            run.checkpoint(1, lambda file: file.write(bytes(100_000)))
            run.finish()


def _report(name: str, count: int, work: Callable[[], object]) -> None:
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    print(f"{name:32} {count:6} runs {seconds:8.2f} s {1000 * seconds / count:8.3f} ms each")


if __name__ == "__main__":
    main()
