"""Films of stored runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.commands import main as cli
from headway.commands.play import find_run, load_player
from headway.errors import UsageError
from headway.runs import RunSpec, RunStore
from headway.runs.experiments import Context, Stopped
from headway.study import doorkey
from headway.study.protocols.minigrid import ExplorationProtocol
from tests.runs import dummy

TINY = ExplorationProtocol.quick().replaced(
    num_envs=2, rollout_steps=16, channels=(4,), hidden=(8,), predictor_hidden=8
)


def spec_of(noise: str, method: str = "gmc", steps: int = 64, **changes: object) -> RunSpec:
    protocol = TINY.replaced(**changes)
    (spec,) = doorkey.specs([method], [noise], [0], protocol, "quick", steps=steps)
    return spec


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A finished run with noise, one without, one that was stopped on its way, one that has not begun."""
    store = RunStore(tmp_path_factory.mktemp("play") / "runs")
    for spec in (spec_of("door"), spec_of("none", "ppo", noise_channel="with-noise")):
        with store.lock(spec) as run:
            doorkey.run(run, Context())
    answers = iter([False] * 40 + [True] * 1000)
    with store.lock(spec_of("door", "ppo")) as run, pytest.raises(Stopped):
        doorkey.run(run, Context(should_stop=lambda: next(answers)))
    store.add(spec_of("door", "icm"))
    store.add(dummy.spec_of())
    return store


def play(*arguments: str) -> int:
    return cli.main(["play", *arguments])


def test_a_finished_run(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_of("door")
    assert play(spec.run_id[:9], "--store", str(store.root), "--episodes", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gmc in DoorKey-5x5, door noise, trained for 64 steps"
    assert lines[1].startswith("episode 1: ")
    assert ", noise on in " in lines[1]
    film = store.root / spec.run_id / "play.gif"
    assert lines[2].startswith(f"{film}: ")
    steps = int(lines[1].split("after ")[1].split(" step")[0])
    with Image.open(film) as gif:
        assert gif.n_frames == steps + 1
    assert store.problems(spec.run_id) == []
    assert store.lock(spec) is None  # still done


def test_the_same_seed_gives_the_same_film(store: RunStore, tmp_path: Path) -> None:
    folder = str(store.root / spec_of("none", "ppo", noise_channel="with-noise").run_id)
    films = [tmp_path / f"{number}.gif" for number in range(3)]
    for film, seed in zip(films, "776", strict=True):
        assert play(folder, "--episodes", "1", "--max-frames", "30", "--seed", seed, "--out", str(film)) == 0
    assert films[0].read_bytes() == films[1].read_bytes()
    assert films[0].read_bytes() != films[2].read_bytes()


def test_a_film_that_is_cut_says_so(store: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = spec_of("door").run_id
    out = tmp_path / "short.gif"
    assert play(run_id, "--store", str(store.root), "--max-frames", "3", "--greedy", "--out", str(out)) == 0
    text = capsys.readouterr().out
    assert "the film ends in episode 1, after 3 frames; --max-frames allows more" in text
    with Image.open(out) as gif:
        assert gif.n_frames == 3


def test_an_unfinished_run_shows_its_last_checkpoint(store: RunStore) -> None:
    spec = spec_of("door", "ppo")
    player = load_player(*find_run(spec.run_id, store.root))
    assert player.progress == "trained for 32 of 64 steps"
    again = doorkey.make(spec, Context())
    again.iterate()
    for name, expected in again.agent.policy.state_dict().items():
        assert np.array_equal(player.policy.state_dict()[name], expected), name


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (spec_of("door", "icm"), "expected a run with a checkpoint, got .*, pending, without a checkpoint"),
        (dummy.spec_of(), "expected a run of an agent .*, got .*dummy.*trains no agent"),
    ],
    ids=["pending", "no agent"],
)
def test_a_run_without_an_agent(store: RunStore, spec: RunSpec, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_player(*find_run(spec.run_id, store.root))


def test_a_run_is_found_by_folder_and_by_how_its_id_begins(store: RunStore) -> None:
    run_id = spec_of("door").run_id
    for text in (run_id, run_id[:10], str(store.root / run_id)):
        assert find_run(text, store.root)[1].run_id == run_id
    with pytest.raises(UsageError, match=r"expected the folder of a run.*got 'xyz'; the runs: headway status"):
        find_run("xyz", store.root)
    with pytest.raises(UsageError, match="got ''"):
        find_run("", store.root)


def test_an_ambiguous_beginning_lists_the_runs(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    ids = store.add_all([dummy.spec_of(seed=seed) for seed in range(40)])
    first = max({run_id[0] for run_id in ids}, key=lambda letter: sum(run_id[0] == letter for run_id in ids))
    with pytest.raises(UsageError, match=rf"got '{first}', which begins \d+: {first}.*dummy"):
        find_run(first, store.root)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "a.avi"], "ends in .gif or .mp4, got 'a.avi'"),
        (["--out", "nowhere/a.gif"], "make nowhere first"),
    ],
)
def test_a_wrong_file_is_said_before_anything_is_played(
    store: RunStore, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert play(spec_of("door").run_id, "--store", str(store.root), *arguments) == 2
    out, error = capsys.readouterr()
    assert message in error
    assert out == ""


def test_a_speed_without_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        play("abc", "--fps", "0")
    assert "expected frames per second above 0 and up to 50, got '0'" in capsys.readouterr().err
