"""The command `headway play`: a film of a trained agent."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path

from headway.commands.campaigns import whole
from headway.errors import UsageError
from headway.rl.film import Shot, Title, check_suffix, watch, write_film
from headway.runs.address import parse_folder
from headway.runs.files import write_bytes
from headway.runs.find_run import find_run
from headway.runs.output import complain, emit
from headway.runs.text import count
from headway.study.playing import Player, load_player

FILM = "play.gif"
"""What a film is called in the folder of its run, where the report looks for it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Lets a trained agent play, and writes a film of it: a GIF, or an MP4 if imageio-ffmpeg is there."
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="the folder of a run, or an id in the store, or how it begins")
    add("--store", type=parse_folder, default=Path("runs"), metavar="DIR", help="the run store (%(default)s)")
    add("--episodes", type=whole(1), default=3, metavar="N", help="episodes to play (%(default)s)")
    add("--out", type=Path, metavar="FILE", help=f"a .gif or .mp4 (default: {FILM} in the folder of the run)")
    add("--seed", type=whole(0), default=0, metavar="N", help="of the layouts, the noise and the actions (%(default)s)")
    add("--fps", type=_speed, default=10, metavar="N", help="frames per second (%(default)s)")
    add("--greedy", action="store_true", help="the most likely actions, instead of drawing them as in training")
    add("--max-frames", type=whole(1), default=600, metavar="N", help="where the film ends at the latest (%(default)s)")


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        _play(options)
    except UsageError as error:
        complain(f"headway play: {error}")
        return 2
    return 0


def _play(options: argparse.Namespace) -> None:
    store, record = find_run(options.run, options.store)
    out = store.folder(record.run_id) / FILM if options.out is None else options.out
    check_suffix(out)
    if not out.parent.is_dir():
        raise UsageError(f"expected a file in a folder that exists, got {out}; make {out.parent} first")
    player = load_player(store, record)
    emit(f"{player.method} in {player.place}, {player.progress}")
    try:
        shots = watch(player.env, player.actor(options.seed, options.greedy), options.episodes, options.seed)
        film = list(itertools.islice(_told(shots, player), options.max_frames))
    finally:
        player.env.close()
    if len(film) == options.max_frames and not (film[-1].ended and film[-1].episode == options.episodes):
        emit(
            f"the film ends in episode {film[-1].episode}, after {count(len(film), 'frame')}; --max-frames allows more"
        )
    title = Title(player.method, player.place, options.episodes)
    write_film(out, film, title, options.fps, write_bytes, _Progress())
    emit(f"{out}: {count(len(film), 'frame')}, {out.stat().st_size / 1e6:.1f} MB")


def _told(shots: Iterable[Shot], player: Player) -> Iterable[Shot]:
    """Pass shots on, and say how each episode ended."""
    noisy = 0
    for shot in shots:
        noisy = shot.noise_on + (noisy if shot.step else 0)
        if shot.ended:
            noise = f", noise on in {count(noisy, 'step')}" if player.has_noise else ""
            emit(
                f"episode {shot.episode}: {shot.ended} after {count(shot.step, 'step')}, return {shot.total:.3f}{noise}"
            )
        yield shot


class _Progress:
    """Shows on a terminal how much of a film is drawn."""

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr.isatty() and (done % 10 == 0 or done == total):
            end = "\r\x1b[2K" if done == total else ""
            print(f"\rdrawing: {done} of {total} frames{end}", end="", file=sys.stderr, flush=True)


def _speed(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 50:
        raise argparse.ArgumentTypeError(f"expected frames per second above 0 and up to 50, got {text!r}")
    return number
