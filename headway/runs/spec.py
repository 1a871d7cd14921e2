"""`RunSpec`: everything that decides what a run computes, and the id that follows from it.

The id is a hash of the spec, and the spec holds the protocol. A field of a protocol that came later, or that has a new
value in a preset, enters the spec only where the numbers of the run depend on it and are not what they were before. All
other runs keep their ids.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from headway.errors import SpecError
from headway.runs.jsonable import MAX_BYTES, FrozenDict, Json, canonical, check_schema, freeze, parse_object, thaw


@dataclass(frozen=True)
class Later:
    """A later field of a protocol."""

    former: Any
    """The value that reproduces what runs did before."""
    methods: str
    """A regular expression that matches the methods whose numbers depend on the field."""
    now: Any = None
    """Only for a field that is older than this rule: the value that a preset has instead of `former` since then."""

    def concerns(self, method: str) -> bool:
        """Whether the numbers of a method depend on the field."""
        return re.fullmatch(self.methods, method) is not None

    @property
    def is_new(self) -> bool:
        """Whether older specs do not have the field at all."""
        return self.now is None


LATER: Mapping[str, Mapping[str, Later]] = {
    "controlled": {
        "uniform": Later("actor", "uniform"),
        "delta_empty": Later("skip", "delta_loss"),
        "actor_scores": Later("raw", ".*"),
        "norm_all_scale": Later(1.0, "norm_all", now=0.0011),
        "norm_last_scale": Later(1.0, "norm_last", now=0.011),
        "delta_scale": Later(1.0, "delta_loss", now=52000.0),
    },
    "doorkey": {
        "icm_hidden_layer": Later(True, r"icm(\+.+)?"),
    },
}
"""The later fields of each experiment, by name."""


def written(experiment: str, method: str, protocol: Mapping[str, Any]) -> Mapping[str, Any]:
    """The protocol as a spec holds it: without later fields that make no difference to what the run was before."""
    changed = dict(protocol)
    for name, later in LATER.get(experiment, {}).items():
        if name not in protocol:
            continue
        if later.is_new and (protocol[name] == later.former or not later.concerns(method)):
            del changed[name]
        elif not later.is_new and protocol[name] == later.now and not later.concerns(method):
            changed[name] = later.former
    return changed if changed != protocol else protocol


def compared(experiment: str, method: str, protocol: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec's protocol by which runs are told apart.

    A later field that the spec does not have is there with its former value, if it concerns the method; one that does
    not concern the method is left out.
    """
    fields = dict(protocol)
    for name, later in LATER.get(experiment, {}).items():
        if later.concerns(method):
            fields.setdefault(name, later.former)
        elif later.is_new or fields.get(name) == later.former:
            fields.pop(name, None)
    return fields


SPEC_SCHEMA = 1
MAX_NAME = 200


@dataclass(frozen=True, eq=False, kw_only=True)
class RunSpec:
    """What a run is: two runs with equal specs compute the same numbers.

    The fields are copied and frozen when the spec is made. Two specs are equal when their ids are: the order
    of keys does not matter, nor whether a whole number is written 1 or 1.0.

    A controlled experiment: ``RunSpec(experiment="controlled", condition="noise", method="gmc", seed=0,
    params={"dataset": "mnist", "epochs": 100}, protocol={...})``. An exploration experiment:
    ``RunSpec(experiment="doorkey", condition="door-noise", method="icm+gmc", seed=3,
    params={"env": "MiniGrid-DoorKey-8x8-v0", "preset": "paper", "steps": 3_000_000})``.
    """

    experiment: str
    """The experiment that runs it, such as ``controlled`` or ``doorkey``."""
    method: str
    """The signal or exploration method under test."""
    seed: int
    """Where all of the run's randomness starts; zero or more."""
    condition: str = ""
    """The setting in which methods are compared, such as ``noise``; may be empty."""
    params: Mapping[str, Json] = field(default_factory=dict)
    """Data set or environment, length, and every hyper-parameter; may be nested."""
    protocol: Mapping[str, Json] = field(default_factory=dict)
    """The protocol's fields, written out, so that the id changes when a preset does. Later fields are left out where
    they make no difference to what the run was before them; see `headway.runs.spec`."""

    def __post_init__(self) -> None:
        """Check and freeze the fields."""
        for name in ("experiment", "method", "condition"):
            object.__setattr__(self, name, _name(getattr(self, name), name))
        object.__setattr__(self, "seed", _seed(self.seed))
        for name in ("params", "protocol"):
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                raise SpecError(f"expected a mapping for {name}, got {type(value).__name__}")
            if name == "protocol":
                value = written(self.experiment, self.method, value)
            object.__setattr__(self, name, freeze(value, name))

    @cached_property
    def run_id(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the spec's canonical JSON.

        The schema number is no part of it. A field that a later schema adds must be left out of the hash
        while it has its default value, so that old ids stay; `protocol` does so with its own later fields.
        """
        return hashlib.sha256(self._canonical()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values: the fields, the schema number and the id."""
        return {"schema": SPEC_SCHEMA, "run_id": self.run_id, **thaw(self._content())}

    def to_json(self) -> str:
        """Return the text that is stored as ``spec.json``; one too long to be read back is a `SpecError`."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        if len(text) > MAX_BYTES:
            raise SpecError(f"expected a spec of at most {MAX_BYTES} bytes, got {len(text)}; name data, do not hold it")
        return text

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], what: str = "run spec") -> RunSpec:
        """Make a spec from what `to_dict` gives.

        Fields that are missing, unknown or not valid are a `SpecError`, and so is a ``run_id`` that is not theirs. It
        may be missing. What a newer version wrote is a `NewerSchemaError`. Messages begin with ``what``.
        """
        if not isinstance(data, Mapping):
            raise SpecError(f"{what}: expected a mapping, got {type(data).__name__}")
        check_schema(data, SPEC_SCHEMA, what, SpecError)
        content = {key: value for key, value in data.items() if key not in ("schema", "run_id")}
        missing, unknown = _REQUIRED - content.keys(), content.keys() - _NAMES
        if missing or unknown:
            names = ", ".join(sorted(map(str, missing or unknown)))[:200]
            found = f"no {names}" if missing else f"also {names}"
            raise SpecError(f"{what}: expected the fields {', '.join(sorted(_NAMES))}, got {found}")
        try:
            spec = cls(**content)
        except SpecError as exc:
            raise SpecError(f"{what}: {exc}") from None
        if "run_id" in data and data["run_id"] != spec.run_id:
            raise SpecError(
                f"{what}: expected run_id {spec.run_id} for these fields, got {str(data['run_id'])[:40]!r}; "
                "the file was edited or damaged"
            )
        return spec

    @classmethod
    def from_json(cls, text: str | bytes, what: str = "run spec") -> RunSpec:
        """Parse what `to_json` gives; any other text is a `SpecError` that says what is wrong with it."""
        return cls.from_dict(parse_object(text, what, SpecError), what)

    def __eq__(self, other: object) -> bool:
        """Compare by canonical content."""
        if not isinstance(other, RunSpec):
            return NotImplemented
        return self._canonical() == other._canonical()

    def __hash__(self) -> int:
        return hash(self.run_id)

    def __str__(self) -> str:
        """Name the run for people, as in ``controlled/noise/gmc/seed 0``."""
        return "/".join(filter(None, (self.experiment, self.condition, self.method, f"seed {self.seed}")))

    def _content(self) -> FrozenDict:
        return FrozenDict({name: getattr(self, name) for name in _NAMES})

    def _canonical(self) -> bytes:
        return canonical(self._content())


_NAMES = {field.name: field for field in fields(RunSpec)}.keys()
_REQUIRED = frozenset({"experiment", "method", "seed"})


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise SpecError(f"expected a string for {where}, got {type(value).__name__}")
    text: str = freeze(value, where)
    if len(text) > MAX_NAME or not (text.isprintable() and text.strip() == text):
        raise SpecError(f"expected up to {MAX_NAME} printable characters for {where}, got {value[:40]!r}")
    if not text and where != "condition":
        raise SpecError(f"expected a name for {where}, got an empty string")
    return text


def _seed(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise SpecError(f"expected an integer for seed, got {value!r}"[:200])
    if not 0 <= value < 2**63:
        raise SpecError("expected a seed of at least 0 and below 2**63, got one outside")
    return int(value)
