from __future__ import annotations

import re

import torch

from headway.experiments.provenance import code_fingerprint, provenance


def test_the_code_has_a_fingerprint_that_stays() -> None:
    first = code_fingerprint()
    code_fingerprint.cache_clear()
    assert code_fingerprint() == first
    assert re.fullmatch("[0-9a-f]{12}", first)


def test_versions_are_named() -> None:
    facts = provenance("torch")
    assert facts["torch"] == torch.__version__
    assert list(facts) == ["headway", "code", "python", "torch"]
