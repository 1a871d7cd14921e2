"""The command `headway play`: a film of a trained agent."""

from __future__ import annotations

import argparse
import io
import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway.commands.options import add_plugin_option, parse_folder, whole
from headway.commands.report import ProgressLine
from headway.errors import UsageError
from headway.rl.agent import Policy
from headway.rl.film import Choose, Shot, Title, check_suffix, watch, write_film
from headway.runs import RunRecord, RunSpec, RunStore, State
from headway.runs.checkpoints import find_newest
from headway.runs.experiments import load_plugins
from headway.runs.files import write_bytes
from headway.runs.text import count, emit
from headway.study import doorkey
from headway.study.doorkey import make_envs
from headway.study.protocols.minigrid import ExplorationProtocol

FILM = "play.gif"
"""What a film is called in the folder of its run, where the report looks for it."""
_SHOWN = 5


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
    try:
        shots = watch(player.env, player.actor(options.seed, options.greedy), options.episodes, options.seed)
        film = list(itertools.islice(_with_endings(shots, player), options.max_frames))
    finally:
        player.env.close()
    if len(film) == options.max_frames and not (film[-1].ended and film[-1].episode == options.episodes):
        emit(
            f"the film ends in episode {film[-1].episode}, after {count(len(film), 'frame')}; --max-frames allows more"
        )
    title = Title(player.method, player.place, options.episodes)
    line = ProgressLine(sys.stderr)
    write_film(out, film, title, options.fps, write_bytes, lambda done, total: line("drawing", done - 1, total))
    line.clear()
    emit(f"{out}: {count(len(film), 'frame')}, {out.stat().st_size / 1e6:.1f} MB")
    return 0


def _with_endings(shots: Iterable[Shot], player: Player) -> Iterable[Shot]:
    """Pass shots on, and report how each episode ended."""
    noisy = 0
    for shot in shots:
        noisy = shot.noise_on + (noisy if shot.step else 0)
        if shot.ended:
            noise = f", noise on in {count(noisy, 'step')}" if player.has_noise else ""
            emit(
                f"episode {shot.episode}: {shot.ended} after {count(shot.step, 'step')}, return {shot.total:.3f}{noise}"
            )
        yield shot


def _speed(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 50:
        raise argparse.ArgumentTypeError(f"expected frames per second above 0 and up to 50, got {text!r}")
    return number


@dataclass(frozen=True)
class Player:
    """An agent in an environment of the kind that it was trained in.

    Attributes:
        env: one environment, with autoreset disabled.
        policy: how the agent acts.
        method: its intrinsic reward.
        place: the environment in a few words.
        progress: how long it was trained, in words.
        has_noise: whether the environment has noise.
    """

    env: Any
    policy: Policy
    method: str
    place: str
    progress: str
    has_noise: bool

    def actor(self, seed: int, greedy: bool = False) -> Choose:
        """The agent as a function from observations to actions, which it draws by a seed or, greedy, does not draw."""
        generator = None if greedy else torch.Generator().manual_seed(seed)
        return lambda observations: self.policy.choose(observations, generator)


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
    """The agent of a run: of a finished one as it was in the end, of another as it was at its last checkpoint.

    Raises:
        UsageError: it is no exploration run, or has nothing to show yet.
        StoreError: a file cannot be read, or is damaged.
    """
    spec = record.spec
    if spec is None:
        raise UsageError(f"expected a run that can be read, got {record.run_id}: {record.reason}")
    if spec.experiment != doorkey.EXPERIMENT:
        raise UsageError(
            f"expected a run of an agent (experiment {doorkey.EXPERIMENT}), got {record.run_id}, {spec}; "
            f"there is no agent to be seen in it"
        )
    content, progress = _weights(store, record, spec)
    protocol = ExplorationProtocol.from_dict(spec.protocol)
    env_id = str(spec.params["env_id"])
    env = make_envs(protocol, env_id, spec.condition, 0, 1, autoreset_mode="disabled")
    noisy = spec.condition != "none"
    name = env_id.removeprefix("MiniGrid-").removesuffix("-v0")
    place = f"{name}, {spec.condition} noise" if noisy else f"{name}, no noise"
    return Player(env, doorkey.load_policy(spec, content), spec.method, place, progress, noisy)


def _weights(store: RunStore, record: RunRecord, spec: RunSpec) -> tuple[bytes, str]:
    """The policy's weights as `doorkey.load_policy` takes them, and how long they were trained."""
    total = f"{spec.params['steps']:,} steps"
    if record.state is State.DONE:
        return store.read_file(record.run_id, doorkey.POLICY_FILE), f"trained for {total}"
    found, problems = find_newest(store.folder(record.run_id), record.run_id)
    if found is None:
        why = f" ({'; '.join(problems)})" if problems else ""
        raise UsageError(
            f"expected a run that has got somewhere, got {record.run_id}, {record.state.value}, without a checkpoint"
            f"{why}; let it run first"
        )
    state = torch.load(io.BytesIO(found.payload), map_location="cpu", weights_only=True)
    file = io.BytesIO()
    torch.save(state["agent"]["policy"], file)
    return file.getvalue(), f"trained for {found.step:,} of {total}"
