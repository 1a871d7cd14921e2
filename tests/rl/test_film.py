from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.errors import EnvError, UsageError
from headway.rl import film, make_env
from headway.rl.film import Shot, Title, draw, watch, write_film

TITLE = Title("icm+gmc", "DoorKey-5x5, door noise", 2)
LEFT = 0


def environment(noise: str = "door"):
    return make_env("MiniGrid-DoorKey-5x5-v0", noise=noise, autoreset_mode="disabled")


def idle(observations: np.ndarray) -> np.ndarray:
    return np.full(len(observations), LEFT)


def shot(ended: str = "", noise_on: bool = False) -> Shot:
    env = environment()
    obs, _ = env.reset(seed=0)
    noise = np.random.default_rng(0).normal(size=(5, 5)) if noise_on else np.zeros((5, 5))
    return Shot(np.array(obs[0, ..., :3], dtype=np.uint8), noise, 1, 7, 0.25, 0.5, noise_on, ended)


def test_every_moment_is_seen() -> None:
    env = environment()
    limit = 250  # 10 x 5 x 5
    shots = list(watch(env, idle, 2, seed=0))
    assert [(each.episode, each.step) for each in shots] == [(e, s) for e in (1, 2) for s in range(limit + 1)]
    assert [each.ended for each in shots if each.ended] == ["cut off"] * 2
    assert all(each.total == 0 for each in shots)
    first, second = shots[0].grid, shots[limit + 1].grid
    assert not np.array_equal(first, second)  # another layout
    again = list(watch(environment(), idle, 1, seed=0))
    assert np.array_equal(again[0].grid, first)


def test_noise_is_seen_where_it_is_on() -> None:
    rng = np.random.default_rng(0)
    shots = list(watch(environment(), lambda obs: rng.integers(0, 7, 1), 4, seed=0))
    assert any(each.noise_on for each in shots)
    for each in shots:
        assert each.noise is not None
        assert each.noise.any() == each.noise_on
    assert all(each.noise is None for each in watch(environment("none"), idle, 1, seed=0))


def test_rewards_add_up_and_a_solved_episode_says_so() -> None:
    rng = np.random.default_rng(1)
    shots = list(watch(environment(), lambda obs: rng.integers(0, 7, 1), 30, seed=0))
    solved = [each for each in shots if each.ended == "solved"]
    assert solved
    assert all(each.reward == each.total == pytest.approx(1 - 0.9 * each.step / 250) for each in solved)


def test_other_environments_are_refused() -> None:
    with pytest.raises(EnvError, match="got 2 with SAME_STEP"):
        next(watch(make_env("MiniGrid-DoorKey-5x5-v0", num_envs=2), idle, 1))


def test_a_frame_shows_grid_noise_and_words() -> None:
    plain, noisy, solved = draw(shot(), TITLE), draw(shot(noise_on=True), TITLE), draw(shot("solved"), TITLE)
    assert plain.shape == noisy.shape == solved.shape
    assert plain.shape[0] % 2 == plain.shape[1] % 2 == 0
    grid, caption = slice(0, 263), slice(263, None)
    assert (plain[grid] != noisy[grid]).any()
    assert (plain[grid] == solved[grid]).all()
    for other in (noisy, solved):
        assert (plain[caption] != other[caption]).any()
    longer = draw(shot(), Title("icm+gmc", "DoorKey-5x5, door noise", 9))
    assert (plain[caption] != longer[caption]).any()


def test_a_gif_has_a_frame_for_each_shot(tmp_path: Path) -> None:
    shots = [shot(), shot(noise_on=True), shot("solved")]
    seen: list[tuple[int, int]] = []
    write_film(tmp_path / "a.gif", shots, TITLE, fps=5, report=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 3
        assert gif.info["loop"] == 0
        for index, (each, milliseconds) in enumerate(zip(shots, (200, 200, 1000), strict=True)):
            gif.seek(index)
            assert gif.info["duration"] == milliseconds
            found = np.asarray(gif.convert("RGB")).astype(int)
            assert np.abs(found - draw(each, TITLE)).mean() < 3  # 256 colours are nearly all that there are


# imageio leaves the pipes to ffmpeg to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_mp4(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    import imageio.v2 as imageio

    write_film(tmp_path / "a.mp4", [shot(), shot("solved")], TITLE, fps=5)
    with imageio.get_reader(tmp_path / "a.mp4") as reader:
        frames = [np.asarray(frame) for frame in reader]
    assert len(frames) == 1 + 5
    assert np.abs(frames[0].astype(int) - draw(shot(), TITLE)).mean() < 8


def test_what_cannot_be_written_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"ends in .gif or .mp4, got 'a.avi'"):
        write_film(tmp_path / "a.avi", [shot()], TITLE)
    find = film.importlib.util.find_spec
    monkeypatch.setattr(film.importlib.util, "find_spec", lambda name: None if name == "imageio_ffmpeg" else find(name))
    with pytest.raises(
        UsageError, match=r"expected imageio-ffmpeg .* run: pip install imageio-ffmpeg, or write a .gif"
    ):
        write_film(tmp_path / "a.mp4", [shot()], TITLE)
    assert list(tmp_path.iterdir()) == []
