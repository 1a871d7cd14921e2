"""The paper's claims as checks on runs: `evaluate_claims` judges all of them."""

from typing import TYPE_CHECKING, Any

from headway.analysis.claims import allocation, areas
from headway.analysis.claims.verdicts import (
    CLAIMS,
    Claim,
    ClaimResult,
    Condition,
    Evidence,
    Finding,
    Judgement,
    TooLittleDataError,
    Verdict,
    evaluate_claims,
    register,
)

if TYPE_CHECKING:
    from headway.analysis.claims.formats import as_dict, as_markdown, as_text

__all__ = [
    "CLAIMS",
    "Claim",
    "ClaimResult",
    "Condition",
    "Evidence",
    "Finding",
    "Judgement",
    "TooLittleDataError",
    "Verdict",
    "allocation",
    "areas",
    "as_dict",
    "as_markdown",
    "as_text",
    "evaluate_claims",
    "register",
]


def __getattr__(name: str) -> Any:
    """The texts, imported when they are used."""
    if name in ("as_dict", "as_markdown", "as_text"):
        from headway.analysis.claims import formats

        return getattr(formats, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
