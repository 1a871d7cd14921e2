"""Films of agents: shots with a caption, as a GIF or an MP4."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headway.errors import EnvError, MissingExtraError, UsageError
from headway.rl.envs.grids import render_grid

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


Array = npt.NDArray[Any]
Choose = Callable[[Array], Array]
"""Actions [N, ...] for observations [N, ...]."""

SIDE = 256
"""Pixels that the longer side of a grid has, about."""
MARGIN, LINE, TEXT = 8, 17, 13
LEAST_WIDTH = 304
PAPER, INK, FAINT = (16, 18, 22), (228, 231, 236), (142, 149, 160)
GOOD, BAD, NOISY = (96, 200, 120), (230, 110, 90), (240, 196, 64)
SAMPLES = 48
"""Frames that the palette of a GIF is made from."""
SUFFIXES = (".gif", ".mp4")
Report = Callable[[int, int], object]


@dataclass(frozen=True)
class Shot:
    """One moment of an episode."""

    grid: Array  # the codes of the whole grid [width, height, 3]
    noise: Array | None  # the noise channel of the observation [any width, any height]; None if it has none
    episode: int  # from 1
    step: int
    reward: float  # of the last step
    total: float  # all rewards of the episode so far
    noise_on: bool  # whether the observation carries noise
    ended: str = ""  # how: "solved" (with a reward), "over" (without) or "cut off"; empty while it goes on


@dataclass(frozen=True)
class Title:
    """What a film is about: the same in every frame."""

    method: str  # of the agent
    place: str  # where it acts
    episodes: int  # how many episodes the film has


def write_film(
    path: Path,
    shots: Sequence[Shot],
    title: Title,
    fps: float = 10.0,
    save: Callable[[Path, bytes], object] = Path.write_bytes,
    report: Report = lambda done, total: None,
) -> None:
    """Draw shots, one for each frame, and write them as a film; the last of an episode stays for a while.

    `save` writes the finished file, and `report` is told how many of how many shots are drawn.

    Raises:
        UsageError: a file that is no .gif or .mp4, or MP4 without what it takes to write one.
    """
    check_suffix(path)
    make = _gif if path.suffix.lower() == ".gif" else _mp4
    save(path, make(shots, title, fps, report))


def check_suffix(path: Path) -> None:
    """Refuse the name of a film that cannot be written, before it is made; the message says what to do."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"expected a file name that ends in .gif or .mp4, got {path.name!r}")
    if importlib.util.find_spec("PIL") is None:
        raise MissingExtraError("Pillow", "rl")
    if path.suffix.lower() == ".mp4":
        for module, package in (("imageio", "imageio"), ("imageio_ffmpeg", "imageio-ffmpeg")):
            if importlib.util.find_spec(module) is None:
                raise UsageError(
                    f"expected {package} to write an MP4, got none; run: pip install {package}, or write a .gif"
                )


def draw(shot: Shot, title: Title) -> npt.NDArray[np.uint8]:
    """One frame [height, width, 3]: the grid, and under it who acts, how far it is and what it got.

    Both sides are even, as video codecs want them.
    """
    from PIL import Image, ImageDraw

    tile = min(64, max(8, SIDE // max(shot.grid.shape[:2])))
    grid = Image.fromarray(render_grid(shot.grid, tile, shot.noise))
    width = max(LEAST_WIDTH, grid.width + 2 * MARGIN)
    height = grid.height + 2 * MARGIN + 3 * LINE + MARGIN // 2
    width, height = width + width % 2, height + height % 2
    frame = Image.new("RGB", (width, height), PAPER)
    frame.paste(grid, ((width - grid.width) // 2, MARGIN))
    noise = ("noise on", NOISY) if shot.noise_on else ("" if shot.noise is None else "noise off", FAINT)
    lines = [
        (title.method, title.place, FAINT),
        (f"episode {shot.episode}/{title.episodes}   step {shot.step}", *noise),
        (
            f"reward {shot.reward:.2f}   return {shot.total:.2f}",
            shot.ended,
            {"solved": GOOD, "": FAINT}.get(shot.ended, BAD),
        ),
    ]
    text = ImageDraw.Draw(frame)
    top = grid.height + MARGIN + MARGIN // 2
    for line, (left, right, colour) in enumerate(lines):
        text.text((MARGIN, top + line * LINE), left, fill=INK, font=_font())
        text.text((width - MARGIN, top + line * LINE), right, fill=colour, font=_font(), anchor="ra")
    return np.asarray(frame)


@lru_cache(maxsize=1)
def _font() -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(TEXT)


def _hold(shot: Shot, fps: float) -> int:
    """How many frames a shot stays: the last of an episode for a second or so."""
    return max(2, round(fps)) if shot.ended else 1


def _gif(shots: Sequence[Shot], title: Title, fps: float, report: Report) -> bytes:
    """All frames share one palette, made from a few of them: colours do not flicker."""
    from PIL import Image

    palette = _palette(shots, title)
    pictures: list[Picture] = []
    for shot in shots:
        whole = Image.fromarray(draw(shot, title))
        pictures.append(whole.quantize(palette=palette, dither=Image.Dither.NONE))
        report(len(pictures), len(shots))
    durations = [round(_hold(shot, fps) * 1000 / fps) for shot in shots]
    file = io.BytesIO()
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=False)
    return file.getvalue()


def _palette(shots: Sequence[Shot], title: Title) -> Picture:
    """The 256 colours that suit a sample of the frames best, seen side by side."""
    from PIL import Image

    chosen = [shots[i] for i in np.linspace(0, len(shots) - 1, min(SAMPLES, len(shots))).round().astype(int)]
    strip = np.concatenate([draw(shot, title) for shot in chosen], axis=1)
    return Image.fromarray(strip).quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)


def _mp4(shots: Sequence[Shot], title: Title, fps: float, report: Report) -> bytes:
    import tempfile

    import imageio.v2 as imageio

    with tempfile.TemporaryDirectory() as folder:  # ffmpeg goes back in the file, so it cannot write to memory
        path = Path(folder) / "film.mp4"
        writer: Any
        with imageio.get_writer(path, fps=fps, codec="libx264", quality=8, macro_block_size=2) as writer:
            for done, shot in enumerate(shots, 1):
                frame = draw(shot, title)
                for _ in range(_hold(shot, fps)):
                    writer.append_data(frame)
                report(done, len(shots))
        return path.read_bytes()


def watch(env: Any, choose: Choose, episodes: int, seed: int | None = None) -> Iterator[Shot]:
    """Play episodes and show each of their moments, the first and the last included.

    The environment is a single one that does not begin new episodes by itself; it goes on with its random stream if no
    seed is given.
    """
    mode = env.metadata["autoreset_mode"].name
    if env.num_envs != 1 or mode != "DISABLED":
        raise EnvError(
            f"expected one environment with autoreset disabled, got {env.num_envs} with {mode}; "
            f"make it with make_env(..., num_envs=1, autoreset_mode='disabled')"
        )
    for episode in range(1, episodes + 1):
        obs, infos = env.reset(seed=seed if episode == 1 else None)
        step, total, ended = 0, 0.0, ""
        yield _shot(env, obs, infos, episode=episode, step=0, reward=0.0, total=0.0)
        while not ended:
            obs, rewards, terminated, truncated, infos = env.step(choose(obs))
            step, total = step + 1, total + float(rewards[0])
            if terminated[0]:
                ended = "solved" if rewards[0] > 0 else "over"
            elif truncated[0]:
                ended = "cut off"
            yield _shot(env, obs, infos, episode=episode, step=step, reward=float(rewards[0]), total=total, ended=ended)


def _shot(env: Any, obs: Array, infos: dict[str, Any], **facts: Any) -> Shot:
    seen = np.array(obs[0])
    noise = seen[..., 3] if seen.shape[-1] == 4 else None
    noise_on = bool(np.asarray(infos.get("noise_on", [False]))[0])
    return Shot(grid=np.array(env.unwrapped.grids()[0]), noise=noise, noise_on=noise_on, **facts)
