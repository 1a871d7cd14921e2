from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headway.analysis.charts.controlled import page_charts
from headway.analysis.charts.exploration import page_charts as exploration_charts
from headway.analysis.charts.model import Chart
from headway.analysis.comparison import Setting, settings_of
from headway.analysis.report.findings import areas_of, overall_of
from headway.analysis.report.rendering import caption, chart_data
from headway.analysis.results import Results, load_results
from headway.runs import State
from tests.analysis.made import controlled, exploration, made, together
from tests.analysis.stores import SIX, controlled_specs, doorkey_spec, finish_all, write_mixed_store


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    root = tmp_path_factory.mktemp("runs")
    store = write_mixed_store(root, epochs=6, seeds=2)
    finish_all(store, controlled_specs(conditions=["noise"], methods=("dot", "cosine"), seeds=2, epochs=6))
    return load_results(root)


@pytest.fixture(scope="module")
def settings(results: Results) -> list[Setting]:
    return settings_of(results)


def charts_of(settings: list[Setting], section: str | None = None) -> list[Chart]:
    """The charts of a page: those of a section, or of a setting with areas and profiles left out."""
    numbers = {setting.key: found for setting in settings if (found := areas_of(setting))}
    charts = page_charts(settings, numbers, overall_of(settings)) | {"exploration": exploration_charts(settings)}
    return charts[section or settings[0].key]


def panels_of(chart: Chart) -> list[dict]:
    return chart_data(chart)["panels"]


def by_key(series: list[dict]) -> dict[str, dict]:
    return {each["key"]: each for each in series}


def test_the_average_loss_by_hand() -> None:
    runs = [controlled([[2.0, 2, 2, 2], [1.0, 1, 1, 1]], seed=0), controlled([[4.0, 4, 4, 4], [1.0, 1, 1, 1]], seed=1)]
    (setting,) = settings_of(together(*runs))
    chart = charts_of([setting])[0]
    (panel,) = panels_of(chart)
    (series,) = panel["series"]
    assert panel["x"] == [1, 2]
    assert series["mean"] == [3.0, 1.0]
    assert series["seeds"] == [[2.0, 1.0], [4.0, 1.0]]
    half = 12.7062 * math.sqrt(2) / math.sqrt(2)  # t(0.975, 1) times the deviation over the root of n
    assert series["low"] == pytest.approx([3 - half, 1], abs=1e-3)
    assert series["high"] == pytest.approx([3 + half, 1], abs=1e-3)
    assert "over 2 seeds" in chart.caption


def test_every_signal_has_its_panels(settings: list[Setting]) -> None:
    noise = settings[1]
    main, others, variants = charts_of([noise])[1:]
    assert [panel["key"] for panel in panels_of(main)] == [name for name in SIX[:3] for _ in range(2)]
    assert [item["key"] for item in chart_data(others)["picks"]["items"]] == list(SIX[3:])
    assert [item["key"] for item in chart_data(variants)["picks"]["items"]] == ["gmc", "dot", "cosine"]
    for panel in panels_of(main):
        assert list(by_key(panel["series"])) == [f"group-{place}" for place in range(4)] + ["mean"] * (
            panel["row"] == 0
        )
    losses, shares = panels_of(main)[-2:]
    assert [line["value"] for line in losses["lines"]] == pytest.approx([math.log(2), math.log(3), math.log(4)])
    assert [line["value"] for line in shares["lines"]] == [0.25]
    assert not any("peaks" in panel for panel in panels_of(main)), "noise has no order of visits"


def test_peaks_of_the_curriculum_are_marked() -> None:
    time = np.arange(60)[:, None]
    tops = np.repeat([20, 30, 40, 59], [1, 2, 3, 4])  # the last group still rises
    draws = (1000 * np.exp(-(((time - tops) / 8.0) ** 2)) + 500).astype(int)
    runs = [
        controlled(np.ones((60, 10)), draws=draws, condition="curriculum", method=name) for name in ("uniform", "gmc")
    ]
    (setting,) = settings_of(together(*runs))
    panels = [panel for chart in charts_of([setting])[1:] for panel in panels_of(chart)]
    marked = {panel["key"]: panel["peaks"] for panel in panels if panel.get("peaks")}
    assert list(marked) == ["gmc"]
    assert [peak["key"] for peak in marked["gmc"]] == ["group-0", "group-1", "group-2"]


def test_shares_are_per_class_in_the_curriculum(settings: list[Setting]) -> None:
    chart = charts_of(settings)[1]
    shares = panels_of(chart)[1]
    assert [line["value"] for line in shares["lines"]] == [0.1]
    sizes = (1, 2, 3, 4)
    means = by_key(shares["series"])
    total = sum(size * means[f"group-{place}"]["mean"][0] for place, size in enumerate(sizes))
    assert total == pytest.approx(1.0, abs=1e-3)


def test_an_unknown_signal_is_shown_too() -> None:
    runs = [controlled(np.ones((3, 4)), method=method) for method in ("uniform", "magic")]
    (setting,) = settings_of(together(*runs))
    names = [item["key"] for chart in charts_of([setting])[1:] for item in panels_of(chart)]
    assert "magic" in names


def test_areas_stand_relative_to_uniform(settings: list[Setting]) -> None:
    numbers = {setting.key: found for setting in settings if (found := areas_of(setting))}
    (chart,) = charts_of(settings, "summary")
    assert chart_data(chart)["kind"] == "dots"
    assert [panel["title"] for panel in panels_of(chart)] == ["MNIST†, Curriculum", "MNIST†, Noise"]
    places = {name: place for place, name in enumerate(chart.categories)}
    for panel in panels_of(chart):
        uniform = by_key(panel["series"])["uniform"]
        assert uniform["mean"][places["Uniform"]] == 1
        assert "low" not in uniform
        gmc = by_key(panel["series"])["gmc"]
        ratio = numbers[panel["key"]].ratios["gmc"]
        assert gmc["mean"][places["GMC"]] == pytest.approx(ratio.value, rel=1e-4)
        assert len(gmc["seeds"]) == 2


def test_there_is_no_figure_of_areas_without_uniform() -> None:
    found = settings_of(together(controlled(np.ones((3, 4)), method="gmc")))
    assert charts_of(found, "summary") == []


def test_telemetry_shows_what_was_logged(settings: list[Setting]) -> None:
    (chart,) = charts_of(settings[1:2], "telemetry")
    floor, entropy = panels_of(chart)
    assert set(by_key(entropy["series"])) >= set(SIX)
    assert entropy["lines"][0]["value"] == pytest.approx(math.log(4))
    assert set(by_key(floor["series"])) == {"gmc", "dot", "cosine"}
    assert floor["y"]["percent"]
    (bare,) = settings_of(together(controlled(np.ones((3, 4)))))
    assert charts_of([bare], "telemetry") == []


def test_rewards_and_the_pull_of_noise(settings: list[Setting]) -> None:
    exploring = settings[2:]
    chart, noise = charts_of(exploring, "exploration")
    assert [panel["title"] for panel in panels_of(chart)] == ["No noise", "Door noise"]
    assert set(by_key(panels_of(chart)[0]["series"])) == {"ppo", "icm", "gmc", "icm+gmc"}
    assert noise.title == "The pull of the noise, MiniGrid DoorKey, Door noise"
    assert [panel["title"] for panel in panels_of(noise)] == ["Task", "Reward for noise", "Time in noise"]
    assert "ppo" not in by_key(panels_of(noise)[1]["series"]), "it has no intrinsic reward"
    assert charts_of(settings[:2], "exploration") == []


def test_a_reward_curve_by_hand() -> None:
    (setting,) = settings_of(together(exploration([math.nan] * 5 + [1.0] * 5 + [3.0] * 10)))
    (panel,) = panels_of(charts_of([setting], "exploration")[0])
    assert panel["series"][0]["mean"] == pytest.approx([0.1, 0.3]), "in the environment's own unit"
    assert panel["x"] == [2048 * 5.5, 2048 * 15.5]


@pytest.mark.parametrize(
    ("ppo", "icm", "words"),
    [
        (1, 1, "one seed, so no interval."),
        (4, 1, "mean (thick) and single runs (thin) over 1 to 4 seeds, where there are several. “Seeds” changes"),
        (4, 5, "mean and 95% interval over 4 to 5 seeds; single runs (thin) where there are fewer than 5. “Seeds”"),
        (5, 6, "mean and 95% interval over 5 to 6 seeds."),
    ],
)
def test_few_exploration_runs_are_drawn_one_by_one_at_first(ppo: int, icm: int, words: str) -> None:
    runs = []
    for method, seed in [("ppo", seed) for seed in range(ppo)] + [("icm", seed) for seed in range(icm)]:
        protocol = {"curve_block": 1, "icm_hidden_layer": False}
        spec = replace(doorkey_spec("door", method, seed, steps=2048 * 2), protocol=protocol)
        columns = {"episode_return": np.array([seed, 2.0]), "noise_time_share": np.array([0.5, seed / 10])}
        columns["noise_reward_share"] = columns["noise_time_share"]
        runs.append(made(spec, env_steps=2048 * np.arange(1, 3), **columns))
    rewards, noise = charts_of(settings_of(together(*runs)), "exploration")
    for chart, place, curve in ((rewards, 0, [1, 2]), (noise, 2, [0.5, 0.1])):
        assert words in caption(chart)
        assert chart_data(chart)["seeds"] is (max(ppo, icm) > 1)
        found = by_key(panels_of(chart)[place]["series"])
        for method, seeds in (("ppo", ppo), ("icm", icm)):
            assert found[method].get("single", False) is (1 < seeds < 5)
            assert seeds == 1 or found[method]["seeds"][1] == curve


def test_profiles_reach_all_runs(settings: list[Setting]) -> None:
    (chart,) = charts_of(settings, "overall")
    for series in panels_of(chart)[0]["series"]:
        assert series["mean"][-1] == 1
        assert series["mean"] == sorted(series["mean"])
    assert page_charts(settings, {}, {})["overall"] == []


def test_unfinished_runs_are_said_to_be_so() -> None:
    runs = [controlled(np.ones((4, 4)), seed=0), replace(controlled(np.ones((4, 4)), seed=1), state=State.RUNNING)]
    (setting,) = settings_of(together(*runs), with_unfinished=True)
    assert "not finished" in charts_of([setting])[0].caption
    (setting,) = settings_of(together(*runs))
    assert "one seed" in charts_of([setting])[0].caption


def test_every_id_is_its_own_and_fit_for_a_page(settings: list[Setting]) -> None:
    found = [chart for charts in page_charts(settings, {}, {}).values() for chart in charts]
    ids = [chart.id for chart in found]
    assert len(set(ids)) == len(ids)
    assert all(name.replace("-", "").isalnum() for name in ids)


def test_the_pull_of_noise_is_in_the_blocks_of_the_rewards() -> None:
    spec = doorkey_spec("door", steps=2048 * 4)
    spec = replace(spec, protocol={"curve_block": 2})
    columns = {"episode_return": np.ones(4), "env_steps": 2048 * np.arange(1, 5)}
    run = made(spec, **columns, noise_time_share=np.array([0.0, 1.0, 0.5, 0.5]), noise_reward_share=np.full(4, np.nan))
    panel = panels_of(charts_of(settings_of(together(run)), "exploration")[1])[2]
    assert panel["series"][0]["mean"] == [0.5, 0.5]
    assert panel["x"] == [3072, 7168]


def test_a_run_under_way_is_averaged_with_the_same_epochs_of_the_others() -> None:
    line = np.repeat(np.arange(1.0, 501)[:, None], 10, 1)  # the loss is the epoch
    whole, other = (controlled(line, dataset="mnist", condition="curriculum", seed=seed) for seed in (0, 1))
    part = replace(other, state=State.RUNNING, columns={name: v[:95] for name, v in other.columns.items()})
    (setting,) = settings_of(together(whole, part), with_unfinished=True)
    (panel,) = panels_of(charts_of([setting])[0])
    assert panel["x"] == list(range(3, 400, 5))
    assert panel["series"][0]["mean"] == pytest.approx(panel["x"])
