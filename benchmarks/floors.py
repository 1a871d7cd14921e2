"""Gathers the runs that the default floor of GMC is chosen by: `campaigns/floors.toml`, and what `results/` has.

    headway run --campaign campaigns/floors.toml --out sections        # hours; resumes
    python benchmarks/floors.py sections results --out benchmarks/results/floors.json

A row is a run: what it was, the mean of its test loss over the epochs (the area under its curve), the share of its last
draws that went to the most drawn arm, and the mean share of the parameters under the floor.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headway.analysis import load_results
from headway.analysis.rundata import RunData
from headway.study.protocols.classification import Protocol

EPOCHS = 30
FREE = {"floor", "floor_unit", "actor_scores", "uniform", "delta_empty"}
"""Fields in which runs may depart from the released protocol; Uniform's are as good with an actor as without."""


def is_like_them(run: RunData) -> bool:
    """Whether a run of GMC or Uniform is finished, as long, and differs from the released one in the floor alone."""
    spec = run.spec
    if not run.finished or spec.experiment != "controlled" or spec.method not in ("gmc", "uniform"):
        return False
    released = Protocol.released().to_dict()
    same = all(released[name] == value for name, value in spec.protocol.items() if name not in FREE)
    return same and spec.params.get("epochs") == EPOCHS


def rows(places: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """One row for each run, in a fixed order; a run that is in several places comes once."""
    found = {run.id: run for place in places for run in load_results(place) if is_like_them(run)}
    for run in sorted(found.values(), key=lambda one: (one.spec.method, one.id)):
        protocol, columns = run.spec.protocol, run.columns
        row: dict[str, Any] = {
            "run": run.id,
            "dataset": run.spec.params["dataset"],
            "condition": run.spec.condition,
            "method": run.spec.method,
            "seed": run.spec.seed,
        }
        if run.spec.method == "gmc":
            scores = protocol.get("actor_scores", "raw")
            row |= {"floor": protocol["floor"], "unit": protocol["floor_unit"], "scores": scores}
            row["under_floor"] = sum(map(float, columns["under_floor"])) / EPOCHS
        row["area"] = sum(map(float, columns["test_loss_mean"])) / EPOCHS
        row["most_drawn"] = max(map(float, columns["draw_share"][-1]))
        yield row


def main() -> None:
    """Gather and write."""
    parser = argparse.ArgumentParser(description="the runs that the default floor is chosen by")
    parser.add_argument("places", type=Path, nargs="+", help="run stores, folders of them, or exported lots")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    options = parser.parse_args()
    lines = ",\n".join(json.dumps(row) for row in rows(options.places))
    options.out.write_text(f'{{"epochs": {EPOCHS}, "rows": [\n{lines}\n]}}\n', "utf-8")
    print(f"{lines.count(chr(10)) + 1} runs in {options.out}")


if __name__ == "__main__":
    main()
