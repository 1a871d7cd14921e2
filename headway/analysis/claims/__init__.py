"""The paper's claims as checks on runs: `evaluate_claims` judges all of them."""

from headway.analysis.claims import allocation, areas, others
from headway.analysis.claims.evaluation import CLAIMS, Claim, ClaimResult, Evidence, evaluate_claims, register
from headway.analysis.claims.verdicts import (
    Finding,
    Judgement,
    TooLittleDataError,
    Verdict,
    as_dict,
    as_markdown,
    as_text,
)

__all__ = [
    "CLAIMS",
    "Claim",
    "ClaimResult",
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
    "others",
    "register",
]
