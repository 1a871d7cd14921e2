from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from headway.analysis.claims import CLAIMS, Evidence, Finding, evaluate_claims, register
from headway.analysis.claims.formats import as_dict, as_markdown, as_text
from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from tests.analysis.claims.cases import all_of, many
from tests.analysis.made import controlled, together


def test_all_seventeen_claims_are_there() -> None:
    assert set(CLAIMS) == {f"C{number}" for number in range(1, 18)}
    results = evaluate_claims(Results())
    assert [result.claim.id for result in results] == [f"C{number}" for number in range(1, 18)]


def test_no_runs_decide_nothing() -> None:
    assert set(all_of(Results()).values()) == {"not tested"}
    for result in evaluate_claims(Results()):
        assert all(finding.judgement.why for finding in result.findings)


def test_an_id_is_used_once() -> None:
    with pytest.raises(ValueError, match="expected a new id for a claim, got 'C1' twice"):

        @register("C1", "", "")
        def judge(evidence: Evidence) -> Iterable[Finding]:
            return []


def test_other_protocols_do_not_count_and_are_named() -> None:
    runs = many("mnist", "noise", "curiosity", 3, shares=(0, 0, 0, 1))
    result = next(result for result in evaluate_claims(together(*runs), "released") if result.claim.id == "C5")
    assert result.findings[0].judgement.why == (
        f"no finished runs of Noise+MNIST, Curiosity; there are some under {runs[0].protocol}"
    )


def test_runs_that_are_not_whole_do_not_count() -> None:
    run = controlled([[1.0] * 4], method="curiosity")
    bare = type(run)(run.id, run.spec, run.state, {})
    assert set(all_of(together(bare)).values()) == {"undecided", "not tested"}
    assert all_of(together(bare))["C5"] == "undecided"


def test_verdicts_do_not_change_from_one_evaluation_to_the_next() -> None:
    results = together(*many("cifar10", "curriculum", "gmc", 4, noise=0.05))
    (protocol,) = results.protocols()
    assert evaluate_claims(results, protocol) == evaluate_claims(results, protocol)


def test_as_json() -> None:
    runs = many("mnist", "noise", "curiosity", 1, shares=(0, 0, 0, 1))
    content = as_dict(evaluate_claims(together(*runs), runs[0].protocol))
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    part = content["claims"][4]["parts"][0]
    assert part["verdict"] == "undecided"
    assert part["estimate"] == {"value": pytest.approx(1), "low": None, "high": None, "n": 1}
    assert part["seeds"] == 1
    assert content["protocol"] == runs[0].protocol


def test_as_markdown() -> None:
    text = as_markdown(evaluate_claims(Results()))
    claims, silent, parts, *_ = text.split("\n\n")[1:]
    untested = f"Not tested, for want of runs: {', '.join(f'C{number}' for number in range(1, 18))}."
    assert len(claims.splitlines()) == 2
    assert silent == untested
    assert all(line.count("|") == 6 for line in claims.splitlines())
    assert all(line.count("|") == 8 for line in parts.splitlines())
    *_, table, remark = as_markdown(evaluate_claims(Results()), only_found=True).strip().split("\n\n")
    assert len(table.splitlines()) == 2
    assert remark == f"For {len(parts.splitlines()) - 2} other parts there are no runs, or too few for a figure."


def test_as_text() -> None:
    results = evaluate_claims(together(*many("digits", "noise", "curiosity", 3, shares=(0, 0, 0, 1))), "released")
    text = as_text(results)
    assert text.splitlines()[0] == "Protocol: released"
    last = "17 claims under protocol released: 0 reproduced, 0 contradicted, 0 undecided, 17 not tested"
    assert text.splitlines()[-1] == last
    assert len(as_text(results, verbose=False).splitlines()) == 3


def test_what_an_undecided_claim_would_take() -> None:
    """Shares of 0.4 give or take 0.1: the interval of n seeds is off 0.35 when t(n - 1) 0.1 / sqrt(n) < 0.05."""
    runs = many("mnist", "noise", "curiosity", 3, shares=(0.2, 0.2, 0.2, 0.4))
    shares = [0.3, 0.4, 0.5]
    runs = [controlled_shares(share, seed) for seed, share in enumerate(shares)]
    (claim,) = evaluate_claims(together(*runs), runs[0].protocol, only=["C5"])
    finding = claim.findings[0]
    assert (finding.verdict, finding.judgement.needed) == ("undecided", 18)
    assert "would take about 18 seeds" in as_text([claim])
    assert claim.needed == 18, "CIFAR-10 has no runs, and is not undecided"
    assert as_dict([claim])["claims"][0]["seeds_needed"] == 18


def controlled_shares(share: float, seed: int) -> RunData:
    """A run of Curiosity that draws this share from D in each of ten epochs."""
    counts = np.tile([*[round(1000 * (1 - share) / 3)] * 3, round(1000 * share)], (10, 1))
    run = controlled(np.ones((10, 4)), method="curiosity", seed=seed)
    return replace(run, columns={**run.columns, "train_count": counts})


def test_parts_that_do_not_count_are_explained_where_there_are_any() -> None:
    claim = evaluate_claims(Results())[0]
    finding = replace(claim.findings[0], counts=False)
    remark = 'Parts marked "does not count" are there to compare with; they do not decide the verdict.'
    for write in (as_text, as_markdown):
        assert remark not in write([replace(claim, findings=[replace(finding, counts=True)])])
        assert remark in write([replace(claim, findings=[finding])])
