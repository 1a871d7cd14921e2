"""The mixture study without torch: its mixtures and methods by name, and the choices that its numbers depend on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from headway.errors import ProtocolError, SpecError, check_known, did_you_mean
from headway.study.protocols.fields import Fields

TUNING = ("digits", "characters", "algorithms", "regression")
"""The mixtures on which the default was chosen ..."""
HELD_OUT = ("duplicates", "sums", "dependent", "clusters")
"""... and those on which it is shown."""

FIXED = ("uniform", "proportional", "oracle")
"""Shares that stay: equal, by the sizes of the sources, or equal over all sources but noise."""
SCORES: Mapping[str, str] = {
    "loss": "loss",
    "gain": "prediction gain",
    "learnability": "learnability",
    "delta_loss": "loss change",
    "gmc": "GMC, relative floor 1",
    "gmc_small": "GMC, floor 1e-8",
    "gmc_last": "GMC of the last layer",
    "group_gmc": "GMC of groups, last layer",
    "head": "GMC of groups, last layer, Adam's moments",
    "norm_all": "gradient norm",
    "norm_last": "last layer's norm",
    "dot": "dot product",
    "projection": "signed projection",
    "alignment": "alignment with validation",
}
"""What a method scores samples by."""
RULES: Mapping[str, str] = {
    "weights": "multiplicative weights",
    "paced": "weights by batch",
    "policy": "policy gradient",
    "exp3s": "EXP3.S",
    "tscl": "TSCL",
    "ado": "ADO",
    "group_dro": "group DRO",
    "self_paced": "self-paced",
}
"""How scores become shares. `weights` move with each scored batch, `paced` ones as if all batches were scored."""
_METHOD = re.compile(r"(\w+)(?:\+(\w+))?(?:/(\d{1,4}))?(?:~(0?\.\d{1,4}))?", re.ASCII)


@dataclass(frozen=True)
class Method:
    """How a run chooses its samples, written SCORE[+RULE][/EVERY][~HOLD], such as gmc+exp3s/4 or gmc/4~0.5."""

    score: str  # what samples are scored by, or how fixed shares are made
    rule: str = "weights"  # how scores become shares
    every: int = 1  # each so many batches are scored
    hold: float = 0.0  # how far the shares are held to equal ones

    @classmethod
    def read(cls, text: str) -> Method:
        """The method that a text names."""
        match = _METHOD.fullmatch(text)
        score, rule, every, hold = match.groups() if match else (text, None, None, None)
        known = (*FIXED, *SCORES)
        if match is None or score not in known or (score in FIXED and text != score):
            hint = did_you_mean(score, known)
            form = "SCORE[+RULE][/EVERY][~HOLD]"
            raise SpecError(f"expected {form} with a score out of {', '.join(known)}, got {text!r}{hint}")
        check_known("a rule", [rule] if rule else [], RULES, SpecError)
        if every is not None and int(every) < 1:
            raise SpecError(f"expected EVERY of at least 1 in SCORE/EVERY, got {text!r}")
        return cls(score, rule or "weights", int(every or 1), float(hold or 0))

    def title(self) -> str:
        """The method in words."""
        if self.score in FIXED:
            return self.score
        rule = RULES[self.rule] if self.rule != "weights" else ""
        every = f"every {self.every}" if self.every > 1 else ""
        hold = f"hold {self.hold:g}" if self.hold else ""
        return ", ".join(filter(None, (SCORES[self.score], rule, every, hold)))


@dataclass(frozen=True, kw_only=True)
class MixtureProtocol(Fields):
    """The choices of a mixture run."""

    experiment = "mixture"

    steps: int = 300
    """Batches of a run."""
    batch_size: int = 256
    """Samples of a batch."""
    hidden: int = 256
    """Width of the two hidden layers."""
    learning_rate: float = 1e-3
    """Of Adam."""
    validations: int = 20
    """How often the model is validated, at equal distances."""
    beta: float = 0.99
    """Decay rate of the moments of signals that have some."""
    refresh: int = 20
    """Batches between two gradients of the validation sets, for `alignment`."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        sizes = ("steps", "batch_size", "hidden", "validations", "refresh")
        self._check(sizes, lambda value: value >= 1, "at least 1")
        self._check(("beta",), lambda value: 0 <= value < 1, "a decay rate in [0, 1)")
        self._check(("learning_rate",), lambda value: 0 < value < inf, "a number above 0")
        if self.steps % self.validations:
            raise ProtocolError(f"validations: expected a divisor of {self.steps} steps, got {self.validations}")

    @classmethod
    def presets(cls) -> dict[str, Callable[[], MixtureProtocol]]:
        """What makes each preset, by its name."""
        return {"standard": cls, "quick": lambda: cls(steps=20, batch_size=32, hidden=16, validations=2, refresh=5)}
