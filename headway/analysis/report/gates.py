"""GMC behind a noise gate beside GMC without one, with the same floor and with that of the protocol it departs from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.analysis.figures.style import GATES
from headway.analysis.report.groups import CONTROLLED, Setting
from headway.analysis.rundata import RunData
from headway.analysis.stats import Estimate
from headway.analysis.summaries import group_shares
from headway.analysis.tables import areas, relative_area


@dataclass(frozen=True)
class GateRow:
    """One signal under one protocol.

    Attributes:
        setting: the setting whose gates are compared.
        method: the signal.
        protocol: the label of its protocol.
        seeds: the seeds of its runs.
        relative: area under the test-loss curve relative to Uniform's.
        against: the same relative to the first of the rows, which is GMC without a gate; None for that row itself.
        shares: share of the draws in each group, over all epochs, mean over seeds.
    """

    setting: Setting
    method: str
    protocol: str
    seeds: tuple[int, ...]
    relative: Estimate
    against: Estimate | None
    shares: tuple[float, ...]


def gate_tables(settings: Iterable[Setting]) -> list[list[GateRow]]:
    """The rows of every setting that has runs of a gate, and runs of Uniform to compare them with."""
    return [
        _rows(setting)
        for setting in settings
        if setting.kind == CONTROLLED and setting.uniform and any(gate in setting.finished for gate in GATES[1:])
    ]


def _rows(setting: Setting) -> list[GateRow]:
    chosen = [(setting.group.protocol, method, setting.finished[method]) for method in _gates(setting.finished)]
    lender = setting.lender
    if lender is not None and "gmc" in lender.finished:
        chosen.insert(0, (lender.group.protocol, "gmc", lender.finished["gmc"]))
    first = areas(chosen[0][2]) if chosen[0][1] == "gmc" else {}
    uniform = areas(setting.uniform)
    rows = []
    for place, (protocol, method, runs) in enumerate(chosen):
        own = areas(runs)
        rows.append(
            GateRow(
                setting=setting,
                method=method,
                protocol=protocol,
                seeds=tuple(sorted(own)),
                relative=relative_area(own, uniform),
                against=relative_area(own, first) if first and place else None,
                shares=tuple(np.mean([group_shares(run).mean(0) for run in runs], axis=0).tolist()),
            )
        )
    return rows


def _gates(finished: Mapping[str, Sequence[RunData]]) -> list[str]:
    return [method for method in GATES if method in finished]
