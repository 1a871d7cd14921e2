"""Verdicts on claims as text, Markdown, JSON values and rows of a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from headway.analysis.claims.verdicts import ClaimResult, Finding, Verdict, takes
from headway.analysis.table import Cell, Table

SCHEMA = 1
NOT_COUNTED = "does not count"
NOT_COUNTED_MEANS = f'Parts marked "{NOT_COUNTED}" are there to compare with; they do not decide the verdict.'
CLAIM_HEADS = ("claim", "verdict", "what is claimed", "decided by", "remark")
PART_HEADS = ("claim", "part", "verdict", "ours", "paper", "seeds", "remark")
SHOWN_REASONS = 3  #: Reasons for which parts have no figure that one line names


def as_text(results: Sequence[ClaimResult], verbose: bool = True) -> str:
    """The claims for a terminal: a line each, with a line for each part below it unless it is not wanted."""
    lines = [f"Protocol: {_protocol(results)}"] if results else []
    untested = [result.claim.id for result in results if result.verdict is Verdict.NOT_TESTED]
    for result in results:
        if result.claim.id in untested and len(untested) > 1:
            continue
        lines.append(f"{result.claim.id:4}{result.verdict.value:14}{result.claim.text}{_besides(result, results)}")
        if verbose:
            lines += [f"        {line}" for line in _lines(result.findings)]
    if len(untested) > 1:
        lines.append(f"{Verdict.NOT_TESTED.value}, for want of runs: {', '.join(untested)}")
    if verbose and _has_uncounted(results):
        lines.append(NOT_COUNTED_MEANS)
    lines.append(summary(results))
    return "\n".join(lines)


def _has_uncounted(results: Sequence[ClaimResult]) -> bool:
    return any(not finding.counts for result in results for finding in result.findings)


def _lines(findings: Sequence[Finding]) -> list[str]:
    """A line for each part; those for which there are no runs share one."""
    without = [finding for finding in findings if not finding.judgement.ours]
    lines = []
    for finding in findings:
        if (found := finding.judgement).ours:
            seeds = f"n = {found.n}" if found.n else ""
            line = f"{finding.verdict.value:14}{finding.part}: {found.ours}; paper: {finding.paper}"
            lines.append("; ".join(filter(None, (line, seeds, _remark(finding)))))
    if without:
        reasons = list(dict.fromkeys(finding.judgement.why for finding in without))
        more = f"; and {len(reasons) - SHOWN_REASONS} more" if len(reasons) > SHOWN_REASONS else ""
        parts = f"{len(without)} parts: " if len(without) > 1 else f"{without[0].part}: "
        verdicts = {finding.verdict for finding in without}
        verdict = Verdict.NOT_TESTED if verdicts == {Verdict.NOT_TESTED} else Verdict.UNDECIDED
        lines.append(f"{verdict.value:14}{parts}{'; '.join(reasons[:SHOWN_REASONS])}{more}")
    return lines


def summary(results: Sequence[ClaimResult]) -> str:
    """How many claims got which verdict, such as "17 claims: 3 reproduced, 1 contradicted, 13 undecided"."""
    found = Counter(result.verdict for result in results)
    counts = ", ".join(f"{found[verdict]} {verdict}" for verdict in Verdict)
    protocol = f" under protocol {_protocol(results)}" if results else ""
    return f"{len(results)} claims{protocol}: {counts}"


def _protocol(results: Sequence[ClaimResult]) -> str:
    """The protocol by which most of the claims are judged."""
    return Counter(result.protocol for result in results).most_common(1)[0][0]


def _besides(result: ClaimResult, results: Sequence[ClaimResult]) -> str:
    """What is to be said of a claim besides its verdict: another protocol than the others', and what it would take."""
    notes = [f"protocol {result.protocol}"] if result.protocol != _protocol(results) else []
    notes += [result.takes] if result.takes else []
    return f" ({'; '.join(notes)})" if notes else ""


def _remark(finding: Finding) -> str:
    """Why a part is undecided, what it would take, and whether it counts."""
    found = finding.judgement
    is_open = finding.verdict is Verdict.UNDECIDED and (found.needed or 0) > found.n
    return "; ".join(
        filter(None, (found.why, takes(found.needed) if is_open else "", "" if finding.counts else NOT_COUNTED))
    )


def as_markdown(results: Sequence[ClaimResult], only_found: bool = False) -> str:
    """The claims as two Markdown tables: one of the claims, and one of their parts."""
    tested = [result for result in results if result.verdict is not Verdict.NOT_TESTED]
    said = [each for each in tested if not only_found or any(finding.judgement.ours for finding in each.findings)]
    silent = [result.claim.id for result in results if result not in said]
    findings = [(result.claim.id, finding) for result in results for finding in result.findings]
    parts = [(claim_id, finding) for claim_id, finding in findings if finding.judgement.ours or not only_found]
    lacking = len(findings) - len(parts)
    rows = []
    for result in said:
        claim, remark = result.claim, _besides(result, results).strip(" ()")
        rows.append((claim.id, f"**{result.verdict}**", claim.text, claim.decided_by, remark))
    texts = [
        summary(results),
        Table(CLAIM_HEADS, rows).markdown(),
        f"Not tested, for want of runs: {', '.join(silent)}." if silent else "",
        Table(PART_HEADS, [_part_row(*part) for part in parts]).markdown(),
        f"For {lacking} other parts there are no runs, or too few for a figure." if lacking else "",
        NOT_COUNTED_MEANS if _has_uncounted(results) else "",
    ]
    return "\n\n".join(filter(None, texts)) + "\n"


def parts_table(judged: Sequence[Sequence[ClaimResult]]) -> Table:
    """The parts of the claims of several protocols, a row for each."""
    rows = [
        (result.protocol, *_part_row(result.claim.id, finding))
        for results in judged
        for result in results
        for finding in result.findings
    ]
    return Table(("protocol", *PART_HEADS), rows)


def _part_row(claim_id: str, finding: Finding) -> tuple[Cell, ...]:
    found = finding.judgement
    return claim_id, finding.part, finding.verdict.value, found.ours, finding.paper, found.n or "", _remark(finding)


def as_dict(results: Sequence[ClaimResult]) -> dict[str, Any]:
    """The claims of one protocol as plain JSON values."""
    claims = [
        {
            "id": result.claim.id,
            "claim": result.claim.text,
            "decided_by": result.claim.decided_by,
            "verdict": result.verdict.value,
            "protocol": result.protocol,
            "seeds_needed": result.needed,
            "parts": [_part(finding) for finding in result.findings],
        }
        for result in results
    ]
    return {"protocol": _protocol(results) if results else "", "claims": claims}


def _part(finding: Finding) -> dict[str, Any]:
    found, estimate = finding.judgement, None
    if found.estimate:
        ends = {name: getattr(found.estimate, name) for name in ("value", "low", "high")}
        estimate = {name: end if math.isfinite(end) else None for name, end in ends.items()} | {"n": found.estimate.n}
    return {
        "part": finding.part,
        "counts": finding.counts,
        "verdict": finding.verdict.value,
        "ours": found.ours,
        "estimate": estimate,
        "paper": finding.paper,
        "seeds": found.n,
        "seeds_needed": found.needed,
        "why": found.why,
    }
