"""All variants score alike, and what a library cannot do is said."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor, nn

from benchmarks.cost.cases import Case
from benchmarks.cost.variants import VARIANTS, Unsupported, Variant, make_step, plain, try_step
from tests.benchmarks.tiny import CASES, GPT, MLP

INSTALLED = {"torch.func": "torch", "opacus": "opacus", "backpack": "backpack"}


def scores(key: str, case: Case, steps: int = 4) -> Tensor:
    """The scores of the last of some training steps."""
    generator = torch.Generator().manual_seed(1)
    step = make_step(VARIANTS[key], case)
    found = [step(case.data(case.batch, generator)) for _ in range(steps)]
    assert found[-1] is not None
    return found[-1]


# BackPACK computes no per-sample gradients of LayerNorm, see below.
SUPPORTED = [(key, model) for key in INSTALLED for model in CASES if (key, model) != ("backpack", "gpt")]


@pytest.mark.parametrize(("key", "model"), SUPPORTED)
def test_the_peers_give_the_scores_of_headway(key: str, model: str) -> None:
    pytest.importorskip(INSTALLED[key])
    ours = scores("headway", CASES[model])
    assert ours.shape == (CASES[model].batch,)
    assert bool((ours > 0).all())
    torch.testing.assert_close(scores(key, CASES[model]), ours, rtol=1e-4, atol=0)


@pytest.mark.parametrize("key", [key for key in VARIANTS if key != "plain"])
def test_scoring_does_not_change_the_training(key: str) -> None:
    pytest.importorskip(INSTALLED.get(key, "torch"))
    model = MLP.build()
    backward = VARIANTS[key].backward(model)
    data = MLP.data(5, torch.Generator().manual_seed(1))
    backward(data)
    expected = MLP.build()
    plain(expected)(data)
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_backpack_names_the_layer_that_it_does_not_support() -> None:
    pytest.importorskip("backpack")
    data = GPT.data(3, torch.Generator().manual_seed(0))
    with pytest.raises(Unsupported, match="no per-sample gradients of LayerNorm"):
        try_step(VARIANTS["backpack"], GPT, data)


@pytest.mark.parametrize("key", ["opacus", "backpack"])
def test_a_library_that_is_not_installed_is_named_with_the_way_to_get_it(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == key]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, key, None)
    with pytest.raises(Unsupported, match=f"{key} is not installed; run: pip install"):
        make_step(VARIANTS[key], MLP)


def failing(model: nn.Module) -> object:
    raise RuntimeError("something\nin detail")


def test_a_failing_peer_is_unsupported_with_its_own_words() -> None:
    data = MLP.data(5, torch.Generator().manual_seed(0))
    with pytest.raises(Unsupported, match=r"Novel fails: RuntimeError: something$"):
        try_step(Variant("novel", "Novel", failing), MLP, data)  # type: ignore[arg-type]


def test_a_failure_of_headway_itself_is_not_hidden() -> None:
    data = MLP.data(5, torch.Generator().manual_seed(0))
    with pytest.raises(RuntimeError, match="something"):
        try_step(Variant("own", "own", failing, peer=False), MLP, data)  # type: ignore[arg-type]
