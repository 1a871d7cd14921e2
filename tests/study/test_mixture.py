"""The mixture study: its sources, its methods by name, and runs that resume exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headway.analysis.rundata import TIMES
from headway.errors import SpecError
from headway.runs import RunSpec, RunStore
from headway.runs.experiments import Context, Stopped
from headway.study import mixture
from headway.study.mixture_sources import MIXTURES
from headway.study.protocols.mixtures import HELD_OUT, TUNING, Method, MixtureProtocol
from headway.study.requests import MixtureRequest

QUICK = MixtureProtocol.named("quick")


def one(method: str = "gmc/4", name: str = "digits", seed: int = 0) -> RunSpec:
    return mixture.specs([name], [method], [seed], QUICK)[0]


def carry_out(folder: Path, spec: RunSpec, context: Context | None = None) -> dict[str, list]:
    store = RunStore(folder)
    with store.lock(spec) as run:
        mixture.run(run, context or Context())
    return {name: values for name, values in store.metrics(spec.run_id).items() if name not in TIMES}


def test_half_of_the_mixtures_is_held_out() -> None:
    assert set(TUNING) | set(HELD_OUT) == set(MIXTURES.names())
    assert len(TUNING) == len(HELD_OUT) == 4


@pytest.mark.parametrize("name", MIXTURES.names())
def test_only_noise_has_new_labels(name: str) -> None:
    pool = MIXTURES.find(name)(torch.Generator().manual_seed(0))
    assert bool(pool.noisy.any())
    assert len(pool.validation) == int((~pool.noisy).sum())
    assert len(pool.x) == len(pool.y) == int(pool.sizes.sum())
    for source, noisy in enumerate(pool.noisy.tolist()):
        ids = torch.full((200,), source)
        x, y = pool.take(ids, torch.Generator().manual_seed(1))
        uniforms = torch.rand(200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        places = (uniforms * pool.sizes[source]).long() + int(pool.sizes[:source].sum())
        assert torch.equal(x, pool.x[places])
        assert torch.equal(y, pool.y[places]) != noisy


def test_duplicates_repeat_few_images() -> None:
    pool = MIXTURES.find("duplicates")(torch.Generator().manual_seed(0))
    assert len(pool.x[: int(pool.sizes[0])].unique(dim=0)) == 40


def test_methods_by_name() -> None:
    assert Method.read("gmc") == Method("gmc")
    assert Method.read("gmc+exp3s/4~0.5") == Method("gmc", "exp3s", 4, 0.5)
    assert Method.read("gmc/4~0.5").title() == "GMC, relative floor 1, every 4, hold 0.5"
    for wrong in ("gnc", "gmc+none", "oracle/4", "gmc/0", "gmc~2", ""):
        with pytest.raises(SpecError, match="expected"):
            Method.read(wrong)
    with pytest.raises(SpecError, match="expected a mixture out of digits"):
        mixture.specs(["digit"], ["gmc"], [0], QUICK)


def test_fixed_shares_stay() -> None:
    for name, shares in (("uniform", [0.2] * 5), ("oracle", [1 / 3, 1 / 3, 1 / 3, 0, 0])):
        trial = mixture.MixtureTrial("digits", Method.read(name), QUICK, 0)
        for _ in range(20):
            trial.train_batch()
        drawn = torch.tensor(trial.validate()["draw_share"])
        assert torch.allclose(drawn, torch.tensor(shares), atol=0.1), name
        assert bool((drawn[torch.tensor(shares) == 0] == 0).all())


METHODS = ("uniform", "proportional", "oracle", "gmc/4", "alignment/4", "gain+exp3s", "loss+ado", "learnability~0.5")
METHODS += ("gmc_last/4", "group_gmc+paced/4")


@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_run_resumes_to_the_same_numbers(tmp_path: Path, method: str) -> None:
    spec, asked = one(method), iter(range(1000))
    whole = carry_out(tmp_path / "whole", spec)
    assert whole["step"] == [10, 20]
    with pytest.raises(Stopped):
        carry_out(tmp_path / "parts", spec, Context(should_stop=lambda: next(asked) >= 7))
    assert repr(carry_out(tmp_path / "parts", spec)) == repr(whole)


def test_methods_start_alike() -> None:
    first, second = (mixture.MixtureTrial("sums", Method.read(name), QUICK, 3) for name in ("uniform", "gmc"))
    assert torch.equal(first.pool.x, second.pool.x)
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))


def test_the_quick_study_has_five_methods_two_mixtures_and_two_seeds() -> None:
    specs = MixtureRequest.read({"quick": True}).specs()
    found = {(spec.condition, spec.method, spec.seed) for spec in specs}
    mixtures, methods, seeds = (set(each) for each in zip(*found, strict=True))
    assert (len(mixtures), len(methods), len(seeds), len(specs)) == (2, 5, 2, 20)
    assert {"uniform", "oracle"} < methods
    assert {spec.protocol["steps"] for spec in specs} == {MixtureProtocol().steps}
    asked = MixtureRequest.read({"quick": True, "mixture": "sums"}).specs()
    assert {spec.condition for spec in asked} == {"sums"}
    assert len(MixtureRequest.read({}).specs()) == 8 * 4 * 3
