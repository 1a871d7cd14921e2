"""Which figures runs allow, and what every one of them must hold: sizes, fonts, nothing covered, nothing cut off."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from headway.analysis.charts import drawing
from headway.analysis.charts import figure as figures
from headway.analysis.charts.drawing import draw
from headway.analysis.charts.exploration import doorkey_size
from headway.analysis.charts.figure import FigurePlan, plan_figures, protocol_folders
from headway.analysis.charts.model import Chart, seeds_text
from headway.analysis.comparison import settings_of, slug
from headway.analysis.results import Results, load_results
from headway.analysis.summaries import auc
from headway.runs import RunStore
from tests.analysis import stores
from tests.analysis.made import controlled, together

pytestmark = pytest.mark.slow
EPOCHS = 12
PROTOCOL = f"released, epochs={EPOCHS}"
SIGNALS = (*stores.SIX, "dot", "cosine")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two conditions, eight signals, exploration with and without noise, and a grid of floors."""
    store = RunStore(tmp_path_factory.mktemp("runs"))
    stores.finish_all(store, stores.controlled_specs(methods=SIGNALS, seeds=2, epochs=EPOCHS))
    stores.finish_all(store, stores.doorkey_specs(methods=("ppo", "icm", "gmc"), seeds=2))
    for beta in (0.9, 0.99):
        for floor in (1e-6, 1e-4):
            stores.finish_all(
                store, [stores.controlled_spec(seed=s, epochs=EPOCHS, beta=beta, floor=floor) for s in (0, 1)]
            )
    return load_results(store.root)


@pytest.fixture(scope="module")
def plans(results: Results) -> list[FigurePlan]:
    return plan_figures(results)


NAMES = {
    *("groups-mnist-curriculum-main", "groups-mnist-curriculum-others", "groups-mnist-noise-main"),
    *("groups-mnist-noise-others", "average-loss-mnist-curriculum", "average-loss-mnist-noise", "average-loss"),
    *("auc", "auc-ablation", "ablation-mnist-curriculum", "ablation-mnist-noise", "telemetry-mnist"),
    *("minigrid", "environment", "television", "sensitivity-mnist-noise-gmc"),
}


@dataclass(frozen=True)
class Word:
    """A text as it stands in a figure, in pixels."""

    text: str
    size: float
    box: Bbox


@dataclass(frozen=True)
class Page:
    """A figure, laid out, and all that is written in it."""

    figure: Figure
    words: list[Word]


@pytest.fixture(scope="module")
def drawn(plans: list[FigurePlan]) -> dict[str, Page]:
    """Every figure."""
    with figures.house_style():
        return {chart.id: lay_out(draw(chart)) for chart in _charts(plans)}


def lay_out(figure: Figure) -> Page:
    """Lay a figure out, and note the texts that are really drawn: ticks out of sight are not."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    found: list[Text] = []
    with pytest.MonkeyPatch.context() as patch:
        draw = Text.draw
        patch.setattr(Text, "draw", lambda self, renderer: (found.append(self), draw(self, renderer))[1])
        figure.draw_without_rendering()
    shown = [text for text in dict.fromkeys(found) if text.get_visible() and text.get_text().strip()]
    words = [Word(text.get_text(), text.get_fontsize(), Text.get_window_extent(text)) for text in shown]
    return Page(figure, words)


def _charts(plans: list[FigurePlan]) -> Iterator[Chart]:
    for plan in plans:
        yield from plan.charts


def test_every_kind_of_figure_is_planned(plans: list[FigurePlan]) -> None:
    assert {chart.id for chart in _charts(plans)} == NAMES
    assert {item.id: item.reason for plan in plans for item in plan.omissions} == {
        "auc-gates": "no condition with finished runs of Uniform and of one of GMC, hard gate / GMC, soft gate",
        "gates-mnist-curriculum": "no finished runs of GMC, hard gate / GMC, soft gate",
        "gates-mnist-noise": "no finished runs of GMC, hard gate / GMC, soft gate",
    }


def test_points_of_a_grid_have_no_figures_of_their_own(plans: list[FigurePlan]) -> None:
    labels = [plan.protocol for plan in plans]
    assert not any("floor" in label for label in labels)
    assert labels[-1] == ""


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_figure_is_fit_for_print(name: str, drawn: dict[str, Page]) -> None:
    figure, words = drawn[name].figure, drawn[name].words
    assert figure.get_figwidth() in (drawing.COLUMN_WIDTH, drawing.TEXT_WIDTH)
    assert figure.get_figheight() <= 9
    assert words
    for word in words:
        assert word.size >= drawing.SMALLEST_FONT, word.text
        box = word.box
        for inside in (box.x0 >= -1, box.y0 >= -1, box.x1 <= figure.bbox.x1 + 1, box.y1 <= figure.bbox.y1 + 1):
            assert inside, f"{word.text!r} is cut off"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_words_do_not_cover_each_other(name: str, drawn: dict[str, Page]) -> None:
    words = drawn[name].words
    for one, other in itertools.combinations(words, 2):
        assert not one.box.padded(-0.5).overlaps(other.box.padded(-0.5)), f"{one.text!r} and {other.text!r}"


@pytest.mark.parametrize("name", sorted(NAMES - {"environment", "sensitivity-mnist-noise-gmc"}))
def test_the_legend_covers_no_panel_and_names_every_curve(name: str, drawn: dict[str, Page]) -> None:
    figure = drawn[name].figure
    (legend,) = figure.legends
    box = legend.get_window_extent()
    for ax in figure.axes:
        assert not box.overlaps(ax.bbox)
    named = {text.get_text().removeprefix("group ") for text in legend.get_texts()}
    shown = {label for ax in figure.axes for label in ax.get_legend_handles_labels()[1]}
    assert shown <= named


def test_panels_of_a_row_are_aligned(drawn: dict[str, Page]) -> None:
    for name, rows in (("groups-mnist-noise-main", 2), ("average-loss", 1), ("telemetry-mnist", 2), ("television", 1)):
        tops = {round(ax.bbox.y1) for ax in drawn[name].figure.axes}
        assert len(tops) == rows, name


def test_curves_hold_the_numbers_of_the_runs(results: Results, drawn: dict[str, Page]) -> None:
    runs = results.select(condition="noise", method="gmc", protocol=PROTOCOL).runs
    (ax,) = drawn["average-loss-mnist-noise"].figure.axes
    (line,) = [line for line in ax.lines if line.get_label() == "GMC"]
    mean = sum(run.columns["test_loss_mean"] for run in runs) / len(runs)
    assert line.get_ydata() == pytest.approx(mean)


def test_bars_hold_the_ratio_of_mean_areas(results: Results, drawn: dict[str, Page]) -> None:
    (ax,) = drawn["auc"].figure.axes
    bars = next(group for group in ax.containers if group.get_label() == "Curiosity")
    for bar, condition in zip(bars, ("curriculum",), strict=True):
        chosen = results.select(condition=condition, protocol=PROTOCOL).methods()
        ours, theirs = (sum(map(auc, chosen[method])) for method in ("curiosity", "uniform"))
        assert bar.get_height() + 1 == pytest.approx(ours / theirs)


def test_captions_tell_seeds_and_setting(plans: list[FigurePlan]) -> None:
    captions = {chart.id: chart.caption for chart in _charts(plans)}
    assert captions["groups-mnist-noise-main"].startswith("MNIST†, Noise. Top: test loss of each group (thin lines")
    assert captions["groups-mnist-noise-main"].endswith(
        "Mean and 95% interval over 2 seeds. † Not the official copy of the data."
    )
    assert "arrows" not in captions["groups-mnist-noise-main"]
    assert "arrows mark the peaks" in captions["groups-mnist-curriculum-main"]
    assert "share of the draws of each group;" in captions["groups-mnist-noise-main"]
    assert "of a class of each group" in captions["groups-mnist-curriculum-main"]
    assert "MiniGrid-DoorKey-8x8-v0" in captions["minigrid"]
    assert captions["minigrid"].endswith("mean (thick) and single runs (thin) over 2 seeds.")


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ((), " (of protocol released, epochs=3)"),
        (("cifar10",), " (MNIST, Noise and Digits, Noise: of protocol released, epochs=3)"),
        (("mnist", "cifar10"), " (Digits, Noise: of protocol released, epochs=3)"),
        (("mnist", "cifar10", "digits"), ""),
    ],
)
def test_the_caption_of_areas_tells_which_settings_borrow_uniform(own: tuple[str, ...], text: str) -> None:
    datasets, ones = ("mnist", "cifar10", "digits"), np.ones((3, 4))
    runs = [controlled(ones, dataset=dataset, method="gmc", floor=0.5) for dataset in datasets]
    runs += [controlled(ones, dataset=dataset, method="uniform", floor=0.5) for dataset in own]
    runs += [controlled(ones, dataset=dataset, method="uniform") for dataset in datasets]
    (plan,) = [plan for plan in plan_figures(together(*runs)) if "floor" in plan.protocol]
    (caption,) = [chart.caption for chart in plan.charts if chart.id == "auc"]
    assert caption.startswith(f"Area under the test-loss curve relative to Uniform's{text} (1; lower is better)")


def test_every_protocol_has_a_folder_of_its_own() -> None:
    assert protocol_folders([]) == protocol_folders(["released", "released"]) == {}
    assert protocol_folders(["released", "paper"]) == {"released": "released", "paper": "paper"}
    found = protocol_folders(["scale=-2", "scale=2", "scale=2, 2", "scale=+2"])
    assert list(found.values()) == ["scale-2", "scale-2-2", "scale-2-2-2", "scale-2-3"]


def test_only_finished_runs_count_and_missing_signals_are_named(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stores.finish(store, stores.controlled_spec(method="gmc", epochs=EPOCHS))
    stores.stop(store, stores.controlled_spec(method="uniform", epochs=EPOCHS))
    stores.fail(store, stores.controlled_spec(method="curiosity", epochs=EPOCHS))
    (plan, rest) = plan_figures(load_results(tmp_path))
    assert [chart.id for chart in plan.charts] == [
        "groups-mnist-noise-main",
        "average-loss-mnist-noise",
        "telemetry-mnist",
    ]
    reasons = {item.id: item.reason for item in (*plan.omissions, *rest.omissions)}
    assert reasons["groups-mnist-noise-others"] == "no finished runs of NormLast / NormAll / DeltaLoss"
    assert reasons["auc"].startswith("no condition with finished runs of Uniform and of one of Curiosity / GMC")
    assert reasons["sensitivity"] == "no runs that differ in decay rate, floor or weight of the entropy alone"
    with figures.house_style():
        for chart in plan.charts:  # a single seed: no intervals, no warnings
            draw(chart).draw_without_rendering()


def test_runs_of_two_protocols_share_no_figure(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for protocol in ("released", "paper"):
        stores.finish_all(
            store, stores.controlled_specs(methods=("uniform", "gmc"), seeds=2, epochs=3, protocol=protocol)
        )
    results = load_results(tmp_path)
    first, second, _ = plan_figures(results)
    assert {first.protocol, second.protocol} == set(results.protocols())
    assert [d.id for d in first.charts] == [d.id for d in second.charts]
    (only,) = plan_figures(results, first.protocol)
    assert only.protocol == first.protocol


def test_a_grid_without_uniform_says_so(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for floor in (1e-6, 1e-4):
        stores.finish(store, stores.controlled_spec(epochs=3, floor=floor))
    (rest,) = plan_figures(load_results(tmp_path))
    assert [(item.id, item.reason) for item in rest.omissions] == [
        ("sensitivity-mnist-noise-gmc", "no finished runs of Uniform to compare with")
    ]


def test_uniform_of_another_unit_of_the_floor_serves_a_grid(tmp_path: Path) -> None:
    """Uniform depends on no field of a signal; everything else must agree."""
    store = RunStore(tmp_path)
    for floor in (1e-6, 1e-4):
        stores.finish(store, stores.controlled_spec(epochs=3, floor=floor, floor_unit="sample"))
    stores.finish(store, stores.controlled_spec(method="uniform", epochs=3, learning_rate=0.1))
    assert not any(plan.charts for plan in plan_figures(load_results(tmp_path)) if not plan.protocol)
    stores.finish(store, stores.controlled_spec(method="uniform", epochs=3))
    drawn = [d.id for plan in plan_figures(load_results(tmp_path)) if not plan.protocol for d in plan.charts]
    assert drawn == ["sensitivity-mnist-noise-gmc"]


def test_gated_methods_have_a_television_of_their_own(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    methods = ("ppo", "icm", "gmc", "icm+gmc", "forward+gmc_hard", "icm+gmc_soft")
    stores.finish_all(store, stores.doorkey_specs(conditions=("door",), methods=methods, seeds=2))
    plan, _ = plan_figures(load_results(tmp_path))
    charts = {chart.id: chart for chart in plan.charts}
    assert set(charts) == {"minigrid", "environment", "television", "television-gates"}
    with figures.house_style():
        shown = {name: _legend(draw(charts[name])) for name in ("minigrid", "television", "television-gates")}
    assert shown["minigrid"] == shown["television"] == ["PPO", "ICM", "GMC", "ICM+GMC"]
    assert shown["television-gates"] == ["PPO", "GMC", "ICM+GMC", "GMC, hard gate", "ICM+GMC, soft gate"]


def _legend(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_exploration_without_noise_has_no_television(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    stores.finish_all(store, stores.doorkey_specs(conditions=("none",), methods=("ppo",), seeds=2))
    plan, _ = plan_figures(load_results(tmp_path))
    assert [chart.id for chart in plan.charts] == ["minigrid", "environment"]
    assert ("television", "no finished runs with noise") in [(item.id, item.reason) for item in plan.omissions]


def test_settings_come_in_the_order_of_listings(results: Results) -> None:
    titles = [setting.heading for setting in settings_of(results.select(protocol=PROTOCOL))]
    assert titles == ["MNIST†, Curriculum", "MNIST†, Noise"], "a note says that these data are made up"


@pytest.mark.parametrize(
    ("env_id", "size"),
    [("MiniGrid-DoorKey-8x8-v0", 8), ("MiniGrid-DoorKey-16x16-v0", 16), ("CartPole-v1", None), ("", None)],
)
def test_only_doorkey_can_be_drawn(env_id: str, size: int | None) -> None:
    assert doorkey_size(env_id) == size


def test_words_for_file_names_and_seeds() -> None:
    assert slug("average loss", "CIFAR-10", "../noise") == "average-loss-cifar-10-noise"
    assert slug("") == "figure"
    assert seeds_text([]) == "no seeds"
    assert seeds_text([1, 1]) == "1 seed"
    assert seeds_text([18, 20]) == "18 to 20 seeds"


def test_exploration_in_small_with_noise_is_drawn(tmp_path: Path) -> None:
    """The small preset has blocks of one rollout, so NaN before the first episode stays in the curves."""
    store = RunStore(tmp_path)
    small = {"preset": "quick", "env_id": "MiniGrid-DoorKey-5x5-v0", "steps": 98 * 2048}
    stores.finish_all(store, stores.doorkey_specs(methods=("ppo", "icm", "gmc"), seeds=2, **small))
    silent = stores.doorkey_spec("door", "ppo", 7, **small)
    rows = [{**row, "episode_return": float("nan")} for row in stores.doorkey_rows(silent)]
    stores.finish(store, silent, rows)
    plan = next(plan for plan in plan_figures(load_results(tmp_path)) if plan.protocol == "quick")
    with figures.house_style():
        pages = {chart.id: lay_out(draw(chart)) for chart in plan.charts}
    assert pages.keys() == {"minigrid", "environment", "television"}
    for name in ("minigrid", "television"):
        curves = [line for ax in pages[name].figure.axes for line in ax.get_lines() if len(line.get_xdata()) == 98]
        assert len(curves) >= 6
        assert all(np.isfinite(line.get_ydata()).any() for line in curves)
