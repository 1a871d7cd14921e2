"""The command `headway play`: a film of a trained agent."""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headway.commands.options import add_plugin_option, number, parse_folder, whole
from headway.commands.report import ProgressLine
from headway.errors import UsageError
from headway.rl.agent import Policy
from headway.rl.film import Title, check_suffix, watch, write_film
from headway.runs import RunRecord, RunSpec, RunStore, State
from headway.runs.checkpoints import find_newest
from headway.runs.experiments import load_plugins
from headway.runs.files import write_bytes
from headway.runs.text import count, emit
from headway.study import doorkey
from headway.study.doorkey import make_envs
from headway.study.protocols.minigrid import ExplorationProtocol
from headway.study.resumable import load_state

FILM = "play.gif"
"""What a film is called in the folder of its run, where the report looks for it."""
_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Lets a trained agent play, and writes a film of it: a GIF, or an MP4 if imageio-ffmpeg is there."
    )
    speed = number(float, lambda found: 0 < found <= 50, "frames per second above 0 and up to 50")
    add = parser.add_argument
    add("run", metavar="RUN", help="the folder of a run, or an id in the store, or how it begins")
    add("--store", type=parse_folder, default=Path("runs"), metavar="DIR", help="the run store (%(default)s)")
    add("--episodes", type=whole(1), default=3, metavar="N", help="episodes to play (%(default)s)")
    add("--out", type=Path, metavar="FILE", help=f"a .gif or .mp4 (default: {FILM} in the folder of the run)")
    add("--seed", type=whole(0), default=0, metavar="N", help="of the layouts, the noise and the actions (%(default)s)")
    add("--fps", type=speed, default=10, metavar="N", help="frames per second (%(default)s)")
    add("--greedy", action="store_true", help="the most likely actions, instead of drawing them as in training")
    add("--max-frames", type=whole(1), default=600, metavar="N", help="where the film ends at the latest (%(default)s)")
    add_plugin_option(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    load_plugins(options.plugin)
    store, record = find_run(options.run, options.store)
    out = store.folder(record.run_id) / FILM if options.out is None else options.out
    check_suffix(out)
    if not out.parent.is_dir():
        raise UsageError(f"expected a file in a folder that exists, got {out}; make {out.parent} first")
    player = load_player(store, record)
    emit(f"{player.method} in {player.place}, {player.progress}")
    film, noisy = [], 0
    generator = None if options.greedy else torch.Generator().manual_seed(options.seed)
    choose = partial(player.policy.choose, generator=generator)
    shots = watch(player.env, choose, options.episodes, options.seed)
    try:
        for shot in itertools.islice(shots, options.max_frames):
            film.append(shot)
            noisy = shot.noise_on + (noisy if shot.step else 0)
            if shot.ended:
                noise = f", noise on in {count(noisy, 'step')}" if player.has_noise else ""
                end = f"{shot.ended} after {count(shot.step, 'step')}, return {shot.total:.3f}{noise}"
                emit(f"episode {shot.episode}: {end}")
    finally:
        player.env.close()
    last = film[-1]
    if len(film) == options.max_frames and not (last.ended and last.episode == options.episodes):
        emit(f"the film ends in episode {last.episode}, after {count(len(film), 'frame')}; --max-frames allows more")
    title = Title(player.method, player.place, options.episodes)
    line = ProgressLine(sys.stderr)
    write_film(out, film, title, options.fps, write_bytes, lambda done, total: line("drawing", done - 1, total))
    line.clear()
    emit(f"{out}: {count(len(film), 'frame')}, {out.stat().st_size / 1e6:.1f} MB")
    return 0


@dataclass(frozen=True)
class Player:
    """An agent in an environment of the kind that it was trained in."""

    env: Any  # one environment, with autoreset disabled
    policy: Policy
    method: str  # its intrinsic reward
    place: str  # the environment in a few words
    progress: str  # how long it was trained, in words
    has_noise: bool


def find_run(text: str, store: Path) -> tuple[RunStore, RunRecord]:
    """The run that is meant by the path of its folder, its id or how that begins, and the store that it is in."""
    folder = Path(text)
    if (folder / "spec.json").is_file():
        home = RunStore(folder.resolve().parent)
        return home, home.record(folder.resolve().name)
    home = RunStore(store)
    found = [record for record in home.status() if text and record.run_id.startswith(text)]
    if len(found) == 1:
        return home, found[0]
    if not found:
        raise UsageError(
            f"expected the folder of a run, or an id in {store} or its beginning, got {text!r}; "
            f"the runs: headway status {store}"
        )
    names = ", ".join(f"{record.run_id} ({record.spec})" for record in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise UsageError(f"expected an id of one run in {store}, got {text!r}, which begins {len(found)}: {names}{more}")


def load_player(store: RunStore, record: RunRecord) -> Player:
    """The agent of a run: of a finished one as it was in the end, of another as it was at its last checkpoint."""
    spec = record.spec
    if spec is None:
        raise UsageError(f"expected a run that can be read, got {record.run_id}: {record.reason}")
    if spec.experiment != doorkey.EXPERIMENT:
        raise UsageError(
            f"expected a run of an agent (experiment {doorkey.EXPERIMENT}), got {record.run_id}, {spec}; "
            f"its experiment trains no agent"
        )
    protocol = ExplorationProtocol.from_dict(spec.protocol)
    env_id = str(spec.params["env_id"])
    policy, progress = _policy(store, record, spec)
    env = make_envs(protocol, env_id, spec.condition, 0, 1, autoreset_mode="disabled")
    name = env_id.removeprefix("MiniGrid-").removesuffix("-v0")
    noisy = spec.condition != "none"
    place = f"{name}, {spec.condition} noise" if noisy else f"{name}, no noise"
    return Player(env, policy, spec.method, place, progress, noisy)


def _policy(store: RunStore, record: RunRecord, spec: RunSpec) -> tuple[Policy, str]:
    """The policy of a run, and how long it was trained."""
    total = f"{spec.params['steps']:,} steps"
    if record.state is State.DONE:
        content = store.read_file(record.run_id, doorkey.POLICY_FILE)
        return doorkey.load_policy(spec, load_state(content)), f"trained for {total}"
    found, problems = find_newest(store.folder(record.run_id), record.run_id)
    if found is None:
        why = f" ({'; '.join(problems)})" if problems else ""
        raise UsageError(
            f"expected a run with a checkpoint, got {record.run_id}, {record.state.value}, without a checkpoint"
            f"{why}; let it run first"
        )
    weights = load_state(found.payload)["agent"]["policy"]
    return doorkey.load_policy(spec, weights), f"trained for {found.step:,} of {total}"
