"""The paper's claims as checks on runs: `evaluate_claims` judges all of them."""

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
    "evaluate_claims",
    "register",
]
