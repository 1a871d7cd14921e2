"""GMC behind a noise gate beside GMC without one, with the same floor and with that of the protocol it departs from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from headway.analysis.charts.style import GATES
from headway.analysis.rundata import RunData
from headway.analysis.settings import CONTROLLED, Setting, shared
from headway.analysis.stats import Estimate
from headway.analysis.summaries import group_shares, score_sizes
from headway.analysis.table import Table, number, ratio_cells
from headway.analysis.tables import areas, relative_area
from headway.study.protocols.names import title

EXPLANATION = (
    "GMC whose parameters count only as far as their momentum stands out of the level of pure noise, beside GMC that "
    'counts them all. "Same floor" is the GMC that differs in the gate alone; "first line" is the GMC of the protocol '
    "that lends its runs of Uniform. Draws are over all epochs; the size of the scores is their mean over arms, and "
    "the median over epochs."
)


@dataclass(frozen=True)
class GateRow:
    """One signal under one protocol.

    Attributes:
        setting: the setting whose gates are compared.
        method: the signal.
        protocol: the label of its protocol.
        seeds: the seeds of its runs.
        relative: area under the test-loss curve relative to Uniform's; None without runs of Uniform.
        beside: the same relative to GMC's, which differs in the gate alone; None for GMC.
        against: the same relative to GMC's under the protocol that this one departs from; None if there is no other.
        shares: share of the draws in each group, over all epochs, mean over seeds.
        score: how large scores are, mean over seeds; None where they were not logged.
    """

    setting: Setting
    method: str
    protocol: str
    seeds: tuple[int, ...]
    relative: Estimate | None
    beside: Estimate | None
    against: Estimate | None
    shares: tuple[float, ...]
    score: float | None


def gate_tables(settings: Sequence[Setting]) -> list[list[GateRow]]:
    """The rows of every setting that has runs of a gate, and runs of Uniform or GMC to compare them with."""
    plain = {_kind(setting): runs for setting in settings if (runs := setting.finished.get("gmc"))}
    return [
        _rows(setting, plain.get(_kind(setting), ()))
        for setting in settings
        if setting.kind == CONTROLLED
        and any(gate in setting.finished for gate in GATES[1:])
        and (setting.uniform or _kind(setting) in plain)
    ]


def _kind(setting: Setting) -> object:
    """What a run of GMC without a gate depends on."""
    return shared(next(iter(setting.all.values()))[0].spec, "gate_level")


def _rows(setting: Setting, plain: Sequence[RunData]) -> list[GateRow]:
    lender = setting.lender
    lent = lender.finished.get("gmc", ()) if lender else ()
    rows = [_row(setting, lender.group.protocol, "gmc", lent)] if lender and lent else []
    for method in GATES:
        if method in setting.finished:
            runs = setting.finished[method]
            rows.append(_row(setting, setting.group.protocol, method, runs, plain if method != "gmc" else (), lent))
    return rows


def _row(
    setting: Setting,
    protocol: str,
    method: str,
    runs: Sequence[RunData],
    plain: Sequence[RunData] = (),
    lent: Sequence[RunData] = (),
) -> GateRow:
    own = areas(runs)
    sizes = score_sizes(runs)
    return GateRow(
        setting=setting,
        method=method,
        protocol=protocol,
        seeds=tuple(sorted(own)),
        relative=relative_area(own, areas(setting.uniform)) if setting.uniform else None,
        beside=relative_area(own, areas(plain)) if plain else None,
        against=relative_area(own, areas(lent)) if lent else None,
        shares=tuple(np.mean([group_shares(run).mean(0) for run in runs], axis=0).tolist()),
        score=float(np.mean(sizes)) if sizes else None,
    )


def gates_table(tables: Sequence[Sequence[GateRow]]) -> Table:
    """One line for each setting, signal and protocol; GMC of the first line, which several tables share, once."""
    head = ["setting", "signal", "protocol", "seeds", "area relative to Uniform", "95% interval"]
    head += ["relative to GMC, same floor", "95% interval", "relative to GMC, first line", "95% interval"]
    head += ["draws A/B/C/D or G0/G1/G2/G3", "size of the scores"]
    rows = []
    for each in chain.from_iterable(tables):
        ratios = (ratio_cells(ratio, len(each.seeds)) for ratio in (each.relative, each.beside, each.against))
        shares = "/".join(f"{100 * share:.0f}" for share in each.shares)
        names = each.setting.title, title(each.method), each.protocol, str(len(each.seeds))
        rows.append((*names, *chain.from_iterable(ratios), f"{shares} %", number(each.score, ".2g")))
    return Table(head, list(dict.fromkeys(rows)))
