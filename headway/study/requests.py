"""Requests: the runs that a command line, or a section of a campaign file, asks for.

A field of a request is an option of `headway run EXPERIMENT` and a key of a section, under the same name. Its values
are texts on a command line and plain values in a file; `Request.read` takes both.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from headway.errors import ProtocolError, SpecError, UsageError, check_known
from headway.registry import Registry
from headway.runs import RunSpec
from headway.runs.text import shorten
from headway.study.protocols.arena import METHODS, ROOMS, ArenaProtocol
from headway.study.protocols.classification import Protocol
from headway.study.protocols.minigrid import ExplorationProtocol
from headway.study.protocols.mixtures import HELD_OUT, TUNING, MixtureProtocol

MOST_SEEDS = 100_000
MOST_RUNS = 1_000_000
_RANGE = re.compile(r"(\d{1,18})(?::(\d{1,18}))?", re.ASCII)
Own = TypeVar("Own", bound="Request")
REQUESTS: Registry[type[Request]] = Registry("experiment", UsageError)


def register_request(name: str) -> Callable[[type[Own]], type[Own]]:
    """Add what `headway run NAME` and sections of campaign files can ask for: a class of `Request`."""
    return REQUESTS.register(name)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for."""

    summary: ClassVar[str] = ""  # what the experiment is, in a few words
    description: ClassVar[str] = ""  # the same in a sentence

    @classmethod
    def read(cls: type[Own], values: Mapping[str, Any]) -> Own:
        """A request of texts or plain values by name."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        check_known("options", values, fields, UsageError)
        return cls(**{name: fields[name].metadata["read"](name, value) for name, value in values.items()})

    def specs(self) -> list[RunSpec]:
        """The runs."""
        try:
            return self.expand()
        except (ProtocolError, SpecError) as error:
            raise UsageError(str(error)) from error

    def expand(self) -> list[RunSpec]:
        """The runs; also errors of protocols and specs may be raised."""
        raise NotImplementedError


# Readers of options: text or plain value -> what a request holds.


def names(name: str, value: Any) -> tuple[str, ...]:
    """One or more names."""
    words = [value] if isinstance(value, str) else value
    if not (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
        raise UsageError(f"{name}: expected text, or a list of texts, got {shown(value)}")
    return tuple(words)


def word(name: str, value: Any) -> str:
    """One name."""
    if not isinstance(value, str):
        raise UsageError(f"{name}: expected text, got {shown(value)}")
    return value


def whole(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else 0
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"{name}: expected a whole number of at least 1, got {shown(value)}")
    return number


def seeds(name: str, value: Any) -> tuple[int, ...]:
    """Seeds: "5", "0,3,7", "0:20" (without 20), or several of them; or whole numbers."""
    values = value if isinstance(value, list) else [value]
    found: dict[int, None] = {}
    for part in itertools.chain.from_iterable(str(each).split(",") for each in values):
        match = _RANGE.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2]) if match and match[2] else first + 1
        if match is None or last <= first:
            raise UsageError(f"expected seeds such as 5 or 0,3,7 or 0:20 (0 to 19), got {shown(value)}")
        if len(found) + last - first > MOST_SEEDS:
            raise UsageError(f"expected at most {MOST_SEEDS} seeds, got {shown(value)}")
        found.update(dict.fromkeys(range(first, last)))
    return tuple(found)


def truth(name: str, value: Any) -> bool:
    """Yes or no."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}: expected true or false, got {shown(value)}")
    return value


def settings(name: str, value: Any) -> Mapping[str, Any]:
    """Fields of the protocol and their values: texts such as "beta=0.99", or a table."""
    if isinstance(value, Mapping):
        return dict(value)
    found: dict[str, str] = {}
    for text in [value] if isinstance(value, str) else value:
        key, equals, own = str(text).partition("=")
        if not (key.strip() and equals):
            raise UsageError(f"expected FIELD=VALUE, got {text!r}")
        if key.strip() in found:
            raise UsageError(f"expected every field once, got {key.strip()!r} twice")
        found[key.strip()] = own.strip()
    return found


def sweeps(name: str, value: Any) -> Mapping[str, tuple[Any, ...]]:
    """Fields of the protocol, each with several values: texts such as "beta=0.9,0.99", or a table of lists."""
    found = {}
    for key, own in settings(name, value).items():
        values = own.split(",") if isinstance(own, str) else own if isinstance(own, list) else [own]
        found[key] = tuple(each.strip() if isinstance(each, str) else each for each in values)
        if not all(each != "" for each in found[key]):
            raise UsageError(f"expected FIELD=VALUE,VALUE,..., got {key + '=' + str(own)!r}")
    return found


def shown(value: Any) -> str:
    """A value in a message; what is too deep or too long to be written is only named."""
    try:
        return shorten(repr(value), 100)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"


# What requests have in common.


_ARGUMENTS: Mapping[Any, Mapping[str, Any]] = {
    names: {"action": "extend", "nargs": "+", "metavar": "NAME"},
    word: {"metavar": "NAME"},
    whole: {"metavar": "N"},
    seeds: {"metavar": "SEEDS"},
    truth: {"action": "store_true"},
    settings: {"action": "append", "metavar": "FIELD=VALUE"},
    sweeps: {"action": "append", "metavar": "FIELD=V1,V2,..."},
}
"""What argparse is told of the options of each reader."""


def option(default: Any, read: Callable[[str, Any], Any], text: str, **argparse: Any) -> Any:
    """A field of a request."""
    metadata = {"read": read, "help": text, **_ARGUMENTS.get(read, {}), **argparse}
    return field(**{"default_factory": dict} if default == {} else {"default": default}, metadata=metadata)


SEEDS = "0:20 for 0 to 19; 0,3,7; or 5 for seed 5 alone"
SET = "change a field; repeatable"
SWEEP = "every value of a field; repeatable"


def combinations(sweep: Mapping[str, tuple[Any, ...]], runs_each: int) -> list[dict[str, Any]]:
    """One set of settings for every combination of the values of a sweep."""
    runs = runs_each * math.prod(map(len, sweep.values()))
    if runs > MOST_RUNS:
        raise UsageError(f"expected at most {MOST_RUNS} runs, got {runs}; sweep over fewer values or seeds")
    return [dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]


def check_said_once(what: str, name: str, value: object | None, *fields: str, given: Collection[str]) -> None:
    """Refuse an option beside fields that it would overrule: the same work would have several ids."""
    doubled = [field for field in fields if field in given]
    if value is not None and doubled:
        raise UsageError(f"expected {what} once, got --{name} and {doubled[0]}=...; leave one of them out")


class Selection(NamedTuple):
    """Which methods are compared where, unless a request says otherwise."""

    places: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]


# The experiments of headway.


@register_request("controlled")
@dataclass(frozen=True, kw_only=True)
class ControlledRequest(Request):
    """Runs of the controlled study."""

    summary = "curricula over labelled images, with and without noise"
    description = "Compares signals that choose what a classifier learns from next."
    lengths: ClassVar[tuple[str, ...]] = ("epochs", "epochs_curriculum_mnist")

    dataset: tuple[str, ...] = option(("digits",), names, "such as mnist, fashion-mnist, cifar10, or a plugin's")
    condition: tuple[str, ...] = option(("curriculum", "noise"), names, "out of curriculum, noise")
    signal: tuple[str, ...] = option(
        ("uniform", "curiosity", "gmc", "norm_last", "norm_all", "delta_loss"),
        names,
        "also dot, cosine, projection, gmc_hard, gmc_soft, or a plugin's",
    )
    seeds: tuple[int, ...] = option((0, 1, 2), seeds, SEEDS)
    protocol: str = option("released", word, "paper, released or demo")
    set: Mapping[str, Any] = option({}, settings, SET)
    sweep: Mapping[str, tuple[Any, ...]] = option({}, sweeps, SWEEP)
    epochs: int | None = option(None, whole, "length of each run, instead of the protocol's")

    def expand(self) -> list[RunSpec]:
        """All combinations."""
        from headway.study.controlled import specs

        swept = combinations(self.sweep, len(self.dataset) * len(self.condition) * len(self.signal) * len(self.seeds))
        given = [name for name in self.lengths if name in {**self.set, **self.sweep}]
        check_said_once("the length of runs", "epochs", self.epochs, *self.lengths, given=given)
        protocol = Protocol.named(self.protocol).override(self.set)
        found = []
        for own in map(protocol.override, swept):
            # The general field for the length, given alone, also holds where a special one would.
            epochs = own.epochs if given == ["epochs"] else self.epochs
            found += specs(self.dataset, self.condition, self.signal, self.seeds, own, epochs)
        return found


@register_request("ablation")
@dataclass(frozen=True, kw_only=True)
class AblationRequest(ControlledRequest):
    """Runs that say which part of GMC does the work."""

    summary = "the same for GMC and its variants"
    description = "GMC beside its variants, which take the absolute value or the norm elsewhere."

    condition: tuple[str, ...] = option(("curriculum",), names, "out of curriculum, noise")
    signal: tuple[str, ...] = option(("uniform", "gmc", "dot", "cosine", "projection"), names, "which signals")


@register_request("sensitivity")
@dataclass(frozen=True, kw_only=True)
class SensitivityRequest(ControlledRequest):
    """Runs that say how far GMC depends on its constants."""

    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "beta": (0.9, 0.99, 0.999, 0.9999),
        "floor": (1e-8, 1e-5, 1e-3, 1e-1),
    }
    constants: ClassVar[Mapping[str, Any]] = {"floor_unit": "sample", "bias_correction": True}
    summary = "the same for GMC over a grid of its constants"
    description = (
        "GMC over a grid, beta=0.9,0.99,0.999,0.9999 by floor=1e-8,1e-5,1e-3,1e-1 in the unit of a sample's own "
        "gradient; --sweep replaces it."
    )

    signal: tuple[str, ...] = option(("gmc",), names, "which signals")
    seeds: tuple[int, ...] = option((0, 1), seeds, SEEDS)

    def expand(self) -> list[RunSpec]:
        """All combinations."""
        full = replace(self, set={**self.constants, **self.set}, sweep=self.sweep or self.grid)
        return ControlledRequest.expand(full)


@register_request("doorkey")
@dataclass(frozen=True, kw_only=True)
class DoorkeyRequest(Request):
    """Runs of agents that explore."""

    summary = "exploration of a grid world, with and without noise at its door"
    description = "Compares intrinsic rewards of an agent that explores a grid with a key, a door and noise."

    method: tuple[str, ...] = option(
        ("ppo", "icm", "gmc", "icm+gmc"), names, "also forward, rnd, rnd+gmc, or PREDICTOR+SCORER, such as icm+gmc_hard"
    )
    noise: tuple[str, ...] = option(("none", "door"), names, "out of none, door")
    seeds: tuple[int, ...] = option((0, 1, 2), seeds, SEEDS)
    preset: str = option("released", word, "released, paper, fast or quick")
    env: str | None = option(None, word, "the environment, instead of the preset's; also a plugin's", metavar="ID")
    steps: int | None = option(None, whole, "length of each run in steps, up to whole rollouts")
    set: Mapping[str, Any] = option({}, settings, SET)
    sweep: Mapping[str, tuple[Any, ...]] = option({}, sweeps, SWEEP)

    def expand(self) -> list[RunSpec]:
        """All combinations."""
        from headway.study.doorkey import specs

        swept = combinations(self.sweep, len(self.method) * len(self.noise) * len(self.seeds))
        given = {**self.set, **self.sweep}
        check_said_once("the length of runs", "steps", self.steps, "steps", given=given)
        check_said_once("the environment", "env", self.env, "env_id", given=given)
        protocol = ExplorationProtocol.named(self.preset).override(self.set)
        found = []
        for own in map(protocol.override, swept):
            found += specs(self.method, self.noise, self.seeds, own, self.preset, self.env, self.steps)
        return found


@register_request("mixture")
@dataclass(frozen=True, kw_only=True)
class MixtureRequest(Request):
    """Runs of models that learn from mixtures of sources."""

    usual: ClassVar = Selection((*TUNING, *HELD_OUT), ("uniform", "oracle", "loss", "gmc/4"), (0, 1, 2))
    first: ClassVar = Selection(
        ("digits", "clusters"), ("uniform", "oracle", "loss/4", "gmc/4", "head+paced/12~0.2"), (0, 1)
    )
    summary = "mixtures of easy, slow, redundant and noisy sources"
    description = (
        "Compares signals and rules that set the shares of sources, at equal samples and at equal time. "
        "--quick runs uniform, oracle, loss/4, gmc/4, head+paced/12~0.2 on the mixtures digits and clusters with seeds "
        "0 and 1: 20 runs, about a minute on two cores."
    )

    mixture: tuple[str, ...] = option((), names, f"out of {', '.join(usual.places)} (default: all)")
    method: tuple[str, ...] = option(
        (), names, f"also proportional, or SCORE[+RULE][/EVERY][~HOLD] (default: {' '.join(usual.methods)})"
    )
    seeds: tuple[int, ...] = option((), seeds, f"{SEEDS} (default: 0 1 2)")
    protocol: str = option("standard", word, "standard, or quick: 20 steps, for tests")
    set: Mapping[str, Any] = option({}, settings, SET)
    quick: bool = option(False, truth, "a first table: 5 methods, 2 mixtures, 2 seeds, where no others are given")

    def expand(self) -> list[RunSpec]:
        """All combinations."""
        from headway.study.mixture import specs

        usual = self.first if self.quick else self.usual
        protocol = MixtureProtocol.named(self.protocol).override(self.set)
        return specs(self.mixture or usual.places, self.method or usual.methods, self.seeds or usual.seeds, protocol)


@register_request("arena")
@dataclass(frozen=True, kw_only=True)
class ArenaRequest(Request):
    """Runs of the arena."""

    usual: ClassVar = Selection(tuple(ROOMS), METHODS, (0, 1, 2))
    first: ClassVar = Selection(
        ("house-none", "house-button", "house-door", "chain"),
        ("ppo", "forward", "forward+gmc", "icm", "rnd", "counts"),
        (0, 1),
    )
    summary = "every bonus in small rooms, with and without televisions"
    description = (
        "Compares bonuses of the same mean size: where they are high, and how far the agent gets. "
        "--quick runs ppo, forward, forward+gmc, icm, rnd, counts in house-none, house-button, house-door, chain with "
        "seeds 0 and 1: 48 runs of 100,000 steps, about two minutes on two idle cores."
    )

    room: tuple[str, ...] = option((), names, "which rooms, such as house-button or chain-tv (default: all)")
    method: tuple[str, ...] = option((), names, "which methods, as of headway run doorkey (default: all)")
    seeds: tuple[int, ...] = option((), seeds, f"{SEEDS} (default: 0 1 2)")
    preset: str = option("standard", word, "standard or long")
    steps: int | None = option(None, whole, "length of each run in steps, up to whole rollouts")
    set: Mapping[str, Any] = option({}, settings, SET)
    quick: bool = option(False, truth, "a first leaderboard: 6 methods, 4 rooms, 2 seeds, where no others are given")

    def expand(self) -> list[RunSpec]:
        """All combinations."""
        from headway.study.arena import specs

        usual = self.first if self.quick else self.usual
        check_said_once("the length of runs", "steps", self.steps, "steps", given=self.set)
        protocol = ArenaProtocol.named(self.preset).override(self.set)
        rooms, methods = self.room or usual.places, self.method or usual.methods
        return specs(rooms, methods, self.seeds or usual.seeds, protocol, self.preset, self.steps)
