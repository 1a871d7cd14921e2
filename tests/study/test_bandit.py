"""The bandit: the meter against calculation, and calculation against limits known by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from headway.errors import ProtocolError
from headway.study.bandit import Arm, BanditConfig, expect, mean_absolute_product, simulate

SHORT = BanditConfig(steps=300, copies=60, beta=0.98)


@pytest.fixture(scope="module")
def both() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return simulate(SHORT, torch.Generator().manual_seed(0)), dict(expect(SHORT))


def test_arms_without_noise_score_exactly_what_the_recursion_says(
    both: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]],
) -> None:
    simulated, expected = both
    for name in ("curiosity", "gmc"):
        torch.testing.assert_close(simulated[name][:, :3], expected[name][:, :3].double(), rtol=1e-5, atol=1e-9)


def test_the_noisy_arm_scores_what_the_covariances_say(
    both: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]],
) -> None:
    simulated, expected = both
    for name, tolerance in (("curiosity", 0.02), ("gmc", 0.05)):
        late = slice(150, None)
        assert float(simulated[name][late, 3].mean()) == pytest.approx(
            float(expected[name][late, 3].mean()), rel=tolerance
        )


def test_the_gate_shuts_most_of_the_noise_out_and_lets_the_drift_through(
    both: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]],
) -> None:
    simulated, _ = both
    late = {name: values[200:].mean(0) for name, values in simulated.items()}
    assert late["gmc_hard"][3] < late["gmc"][3] / 3
    torch.testing.assert_close(late["gmc_hard"][1], late["gmc"][1])


def test_limits_by_hand() -> None:
    config = BanditConfig(
        arms=(Arm("drift", 1.0, 0.0, 0.0), Arm("noise", 0.0, 0.0, 2.0)), steps=2000, copies=1, beta=0.98
    )
    drift, noise = expect(config)["gmc"][-1].tolist()
    assert drift == pytest.approx(1.0)  # |g| = |m| = sqrt(v)
    # E|g| = s sqrt(2 / pi), E|m| = s sqrt(2 / pi) sqrt((1 - b) / (1 + b)), v = s^2: the same for every s
    assert noise == pytest.approx(2 / math.pi * math.sqrt(0.02 / 1.98), rel=1e-6)


def test_the_mean_of_an_absolute_product() -> None:
    assert mean_absolute_product(-2.0, 3.0, 0.0, 0.0, 0.0) == 6.0
    assert mean_absolute_product(0, 0, 4.0, 9.0, 0.0) == pytest.approx(2 / math.pi * 6)
    assert mean_absolute_product(0, 0, 1.0, 1.0, 1.0) == pytest.approx(1.0)  # E[X^2]
    generator = torch.Generator().manual_seed(0)
    x, z = torch.randn(2, 400_000, generator=generator, dtype=torch.float64)
    y = 0.6 * x + 0.8 * z
    assert mean_absolute_product(0, 0, 1.0, 1.0, 0.6) == pytest.approx(float((x * y).abs().mean()), rel=0.01)


def test_the_page_quotes_what_the_example_gave() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "bandit.md").read_text("utf-8")
    result = json.loads((root / "benchmarks" / "results" / "bandit.json").read_text("utf-8"))
    names = {"curiosity": "loss", "norm": "gradient norm", "gmc": "GMC", "gmc_hard": "GMC, hard gate"}
    for how, table in result["late"].items():
        for signal, scores in table.items():
            name = names[signal] + (", calculated" if how == "calculated" else "")
            assert f"| {name} | {' | '.join(f'{score:.4f}' for score in scores.values())} |" in page
    beta = result["config"]["beta"]
    assert f"which is {2 / math.pi * math.sqrt((1 - beta) / (1 + beta)):.4f} for β = {beta}" in page
    for arm in result["config"]["arms"]:
        noise = f"deviation {arm['noise']:g}" if arm["noise"] else "none"
        assert f"| {arm['name']} | {arm['distance']:g} | {100 * arm['rate']:g}% | {noise} |" in page


def test_an_arm_with_noise_and_a_distance_can_only_be_simulated() -> None:
    config = BanditConfig(arms=(Arm("both", 1.0, 0.01, 1.0),), steps=3, copies=20)
    with pytest.raises(ProtocolError, match="expected arms with noise or with a distance, got 'both' with both"):
        expect(config)
    assert simulate(config, torch.Generator().manual_seed(0))["gmc"].shape == (3, 1)
