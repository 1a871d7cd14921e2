"""Claims with their verdicts as text, Markdown and JSON values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from headway.analysis.claims.registry import ClaimResult
from headway.analysis.claims.verdicts import Finding, Verdict
from headway.analysis.stats import Estimate

SCHEMA = 1
NOT_COUNTED = "does not count"
NOT_COUNTED_MEANS = f'Parts marked "{NOT_COUNTED}" are there to compare with; they do not decide the verdict.'
SHOWN_REASONS = 3
"""Reasons for which parts have no figure that one line names."""


def as_text(results: Sequence[ClaimResult], verbose: bool = True) -> str:
    """The claims for a terminal: a line each, with a line for each part below it unless it is not wanted."""
    lines = [f"Protocol: {results[0].protocol}"] if results else []
    for result in results:
        lines.append(f"{result.claim.id:4}{result.verdict.value:14}{result.claim.text}")
        if verbose:
            lines += [f"        {line}" for line in _lines(result.findings)]
    if verbose and _has_uncounted(results):
        lines.append(NOT_COUNTED_MEANS)
    lines.append(summary(results))
    return "\n".join(lines)


def _has_uncounted(results: Sequence[ClaimResult]) -> bool:
    return any(not finding.counts for result in results for finding in result.findings)


def _lines(findings: Sequence[Finding]) -> list[str]:
    """A line for each part; those for which there are no runs share one."""
    without = [finding for finding in findings if not finding.judgement.ours]
    lines = [_line(finding) for finding in findings if finding.judgement.ours]
    if without:
        reasons = list(dict.fromkeys(finding.judgement.why for finding in without))
        more = f"; and {len(reasons) - SHOWN_REASONS} more" if len(reasons) > SHOWN_REASONS else ""
        parts = f"{len(without)} parts: " if len(without) > 1 else f"{without[0].part}: "
        lines.append(f"{Verdict.UNDECIDED.value:14}{parts}{'; '.join(reasons[:SHOWN_REASONS])}{more}")
    return lines


def summary(results: Sequence[ClaimResult]) -> str:
    """How many claims got which verdict, such as "17 claims: 3 reproduced, 1 contradicted, 13 undecided"."""
    found = Counter(result.verdict for result in results)
    counts = ", ".join(f"{found[verdict]} {verdict}" for verdict in Verdict)
    protocol = f" under protocol {results[0].protocol}" if results else ""
    return f"{len(results)} claims{protocol}: {counts}"


def as_markdown(results: Sequence[ClaimResult], only_found: bool = False) -> str:
    """The claims as two Markdown tables: one of the claims, and one of their parts.

    Args:
        results: the claims with their verdicts.
        only_found: leave out claims and parts for which there are no runs, and say which claims and how many parts.
    """
    lines = [summary(results), "", "| claim | verdict | what is claimed | decided by |", "|---|---|---|---|"]
    silent = []
    for result in results:
        claim = result.claim
        if only_found and not any(finding.judgement.ours for finding in result.findings):
            silent.append(claim.id)
            continue
        lines.append(_cells(claim.id, f"**{result.verdict}**", claim.text, claim.decided_by))
    lines += ["", f"Undecided for want of runs: {', '.join(silent)}."] if silent else []
    lines += ["", "| claim | part | verdict | ours | paper | seeds | remark |", "|---|---|---|---|---|---|---|"]
    without = 0
    for result in results:
        for finding in result.findings:
            found = finding.judgement
            if only_found and not found.ours:
                without += 1
                continue
            remark = "; ".join(filter(None, (found.why, "" if finding.counts else NOT_COUNTED)))
            seeds = str(found.n or "")
            lines.append(
                _cells(result.claim.id, finding.part, str(finding.verdict), found.ours, finding.paper, seeds, remark)
            )
    if without:
        lines += ["", f"For {without} other parts there are no runs, or too few for a figure."]
    if _has_uncounted(results):
        lines += ["", NOT_COUNTED_MEANS]
    return "\n".join(lines) + "\n"


def as_dict(results: Sequence[ClaimResult]) -> dict[str, Any]:
    """The claims of one protocol as plain JSON values."""
    return {
        "protocol": results[0].protocol if results else "",
        "claims": [
            {
                "id": result.claim.id,
                "claim": result.claim.text,
                "decided_by": result.claim.decided_by,
                "verdict": result.verdict.value,
                "parts": [_part(finding) for finding in result.findings],
            }
            for result in results
        ],
    }


def _part(finding: Finding) -> dict[str, Any]:
    found = finding.judgement
    return {
        "part": finding.part,
        "counts": finding.counts,
        "verdict": finding.verdict.value,
        "ours": found.ours,
        "estimate": _estimate(found.estimate),
        "paper": finding.paper,
        "seeds": found.n,
        "why": found.why,
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    numbers = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: number if math.isfinite(number) else None for name, number in numbers.items()} | {"n": estimate.n}


def _line(finding: Finding) -> str:
    found = finding.judgement
    parts = [f"{finding.verdict.value:14}{finding.part}: {found.ours}; paper: {finding.paper}"]
    parts += [f"n = {found.n}"] if found.n else []
    parts += [found.why] if found.why else []
    parts += [] if finding.counts else [NOT_COUNTED]
    return "; ".join(parts)


def _cells(*texts: str) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"
