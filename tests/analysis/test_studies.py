"""What the report and the program say about the arena and the mixture study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.analysis import load_results
from headway.analysis.charts.figure import plan_figures
from headway.analysis.report import write_report
from headway.analysis.results import Results, studies_of
from headway.analysis.studies import Study
from headway.commands.main import main
from tests.analysis import test_arena_tables as arena
from tests.analysis import test_mixtures as mixture

CURVES = {"uniform": [4.0, 3.0, 2.0, 1.0], "oracle": [4.0, 2.0, 1.0, 0.25], "gmc": [4.0, 2.0, 1.0, 0.5]}


def arena_runs() -> Results:
    made = [arena.made("ppo", seed, bonus=0.0, covered=0.25) for seed in range(2)]
    made += [arena.made("rnd", seed, bonus=3.0, covered=0.75) for seed in range(2)]
    made += [arena.made("icm", seed, bonus=1.0, covered=0.5, room=room) for seed in range(2) for room in ROOMS]
    return Results(tuple(made))


ROOMS = ("house-button", "chain")


def mixture_runs(*methods: str) -> Results:
    runs = [mixture.run(name, CURVES[name], 4.0 if name == "gmc" else 2.0) for name in methods]
    return Results(tuple(runs))


def only(results: Results) -> Study:
    (study,) = studies_of(results)
    return study


def test_the_arena_in_words() -> None:
    """RND pays 3 in the noise, and 5/3 elsewhere: 2 in a quiet rollout, 1 in half of a noisy one."""
    study = only(arena_runs())
    assert study.conclusion == (
        "Over 1 room, rnd covers most of the places, 75% (ppo: 25%). Per step, the bonus of rnd is 1.8 times as "
        "large in the noise as elsewhere (the most), that of ppo 0 times (the least)."
    )
    assert [row[0] for row in study.short.rows] == ["rnd", "icm", "ppo"]
    assert study.short.rows[1][-1] == "2 of 2"  # of the room that all have, not of the chain too
    assert all(len(line) <= 80 for line in study.short.text().splitlines())


def test_the_mixtures_in_words() -> None:
    study = only(mixture_runs("uniform", "oracle", "gmc"))
    assert study.conclusion == (
        "Over 1 mixture with 1 seed, gmc ends with 2.00 times the loss of uniform sampling at equal time (2.00 times "
        "on its worst mixture) and 0.50 times at equal samples; lower is better. Its step takes 2.00 times as long. It "
        "gets 50% of the gain of an oracle that knows the noise."
    )
    assert study.short.rows == [["oracle", 0.25, 0.25, 0.25, 1.0], ["gmc", 0.5, 2.0, 2.0, 2.0]]
    assert all(len(line) <= 80 for line in study.short.text().splitlines())


def test_without_the_oracle_nothing_is_said_of_it() -> None:
    study = only(mixture_runs("uniform", "gmc"))
    assert study.conclusion.endswith("Its step takes 2.00 times as long.")
    assert "| gmc | GMC, relative floor 1 | 0.500 | 2.000 | 2.000 | – | 2.000 |" in study.tables[0].markdown()


@pytest.mark.parametrize("methods", [(), ("uniform",), ("gmc",)])
def test_nothing_to_compare(methods: tuple[str, ...]) -> None:
    assert studies_of(mixture_runs(*methods)) == []


def test_runs_without_the_metrics_are_left_out() -> None:
    bare = [replace(run, columns={"env_steps": run.columns["env_steps"]}) for run in arena_runs()]
    assert studies_of(Results(tuple(bare))) == []


def test_each_study_has_a_figure_for_print() -> None:
    pytest.importorskip("matplotlib")
    both = Results((*arena_runs().runs, *mixture_runs("uniform", "oracle", "gmc").runs))
    names = [chart.id for plan in plan_figures(both) for chart in plan.charts]
    assert names == ["arena", "mixtures"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "word", "table", "figure"),
    [
        (
            "arena --room house-button --method ppo counts --seeds 0:2 --steps 1 --set num_envs=4",
            "covers most of the places",
            "Leaderboard, television rooms",
            "arena",
        ),
        (
            "mixture --quick --protocol quick",
            "times the loss of uniform sampling at equal time",
            "Each mixture, at equal time",
            "mixtures",
        ),
    ],
    ids=["arena", "mixture"],
)
def test_run_ends_with_a_table_and_a_sentence_and_the_report_opens_with_it(
    options: str, word: str, table: str, figure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("jinja2", "matplotlib", "pyarrow", "scipy"):
        pytest.importorskip(package)
    assert main(["run", *options.split(), "--out", str(tmp_path / "runs"), "--workers", "0"]) == 0
    *_, heads, sentence, end = capsys.readouterr().out.rstrip().split("\n\n")
    assert end.splitlines()[-1] == f"to see the results: headway report {tmp_path / 'runs'}"
    assert word in sentence.replace("\n", " ")
    assert heads.splitlines()[1].startswith("method ")
    written = write_report(tmp_path / "runs", tmp_path / "report", formats=["svg"])
    page = written.index.read_text("utf-8")
    opening = page[page.index("What happened") : page.index("What was run")]
    assert " ".join(sentence.split()) in opening.replace("&#39;", "'")
    assert f"<caption>{table}</caption>" in page
    assert (tmp_path / "report" / "figures" / f"{figure}.svg").is_file()
    assert "<h2>Claims</h2>" not in page
    assert load_results(tmp_path / "runs").counts()
