"""How claims are judged: the runs of one protocol as evidence, and the rules by which an interval decides."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from headway.analysis.comparison import NEEDED, areas, usable
from headway.analysis.results import Results
from headway.analysis.rundata import Array, RunData
from headway.analysis.stats import CONFIDENCE, Estimate, scipy_stats
from headway.runs.text import count
from headway.study.protocols.labels import STANDARD, nearest_first
from headway.study.protocols.names import DATASETS, rank, title

BySeed: TypeAlias = Mapping[int, float]
PAPER_DATASETS = ("mnist", "cifar10")
PAPER_ENVIRONMENT = "MiniGrid-DoorKey-8x8-v0"
REWARDS = ("episode_return", "env_steps")
SHOWN = 3  #: Protocols that a message names
Judge: TypeAlias = Callable[["Evidence"], Iterable["Finding"]]
MIN_SEEDS = 3  #: Fewer seeds decide nothing
MOST_SEEDS = 1000  #: Where more seeds than this were needed, that is all that is said


class Verdict(str, enum.Enum):
    """What the runs say about a claim."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"  #: There are runs, but not enough of them
    NOT_TESTED = "not tested"  #: There are no runs

    def __str__(self) -> str:
        """Return the plain word."""
        return self.value


class TooLittleDataError(Exception):
    """There are not enough runs for a part of a claim; the message says what is missing."""


class NoRunsError(TooLittleDataError):
    """There are no runs at all for a part of a claim."""


class DivergedError(TooLittleDataError):
    """A run has diverged, so that a part of a claim cannot be judged."""


@dataclass(frozen=True)
class Judgement:
    """What was found for one part of a claim."""

    verdict: Verdict  #: what it says
    ours: str  #: our figure, in words
    n: int  #: the seeds that it rests on; the smallest number where several methods are compared
    why: str = ""  #: why it is undecided; empty otherwise
    estimate: Estimate | None = None  #: the number that decided, if it was one
    needed: int | None = None  #: if undecided, the seeds that would decide it at this value and spread; None if unknown


@dataclass(frozen=True)
class Finding:
    """One part of a claim with its verdict."""

    part: str  #: what is asked, such as "MNIST: Curiosity's share of D is above 1/4"
    paper: str  #: what the paper found
    judgement: Judgement  #: what was found here
    counts: bool = True  #: whether it decides; what the paper leaves open, and other datasets than its own, do not

    @property
    def verdict(self) -> Verdict:
        """What it says."""
        return self.judgement.verdict


def find(part: str, paper: str, judge: Callable[..., Judgement], *of: Any, counts: bool = True) -> Finding:
    """Judge a part of a claim; too little data makes it undecided, and no runs at all leave it untested."""
    try:
        return Finding(part, paper, judge(*of), counts)
    except NoRunsError as error:
        return Finding(part, paper, Judgement(Verdict.NOT_TESTED, "", 0, str(error)), counts)
    except TooLittleDataError as error:
        return Finding(part, paper, Judgement(Verdict.UNDECIDED, "", 0, str(error)), counts)


def combine(findings: Sequence[Finding]) -> Verdict:
    """The verdict on a claim, by its parts that count.

    Contradicted if one of them is, reproduced or not tested if all are, and undecided otherwise.
    """
    verdicts = {finding.verdict for finding in findings if finding.counts}
    if Verdict.CONTRADICTED in verdicts:
        return Verdict.CONTRADICTED
    return verdicts.pop() if len(verdicts) == 1 else Verdict.UNDECIDED


def seeds_needed(estimate: Estimate, *limits: float, confidence: float = CONFIDENCE) -> int | None:
    """How many seeds would take the interval off all limits, if value and spread stay what they are.

    The interval's half width is t(n - 1) s / sqrt(n); s follows from the interval at hand.
    """
    if not estimate.is_bounded or estimate.n < 2:
        return None
    distance = min(abs(estimate.value - limit) for limit in limits)
    spread = (estimate.high - estimate.low) / 2 * math.sqrt(estimate.n) / _quantile(confidence, estimate.n)
    numbers = np.arange(MIN_SEEDS, MOST_SEEDS)
    enough = _quantile(confidence, numbers) * spread / np.sqrt(numbers) < distance
    return int(numbers[enough.argmax()]) if enough.any() else MOST_SEEDS


def _quantile(confidence: float, n: Any) -> Any:
    return scipy_stats().t.ppf((1 + confidence) / 2, n - 1)


def above(estimate: Estimate, limit: float, ours: str) -> Judgement:
    """Is it above the limit? Decided when the interval lies on one side of it."""
    return _judgement(estimate, limit, math.inf, ours, f"the interval covers {limit:.3g}")


def below(estimate: Estimate, limit: float, ours: str) -> Judgement:
    """Is it below the limit? Decided when the interval lies on one side of it."""
    return _judgement(estimate, -math.inf, limit, ours, f"the interval covers {limit:.3g}")


def within(estimate: Estimate, low: float, high: float, ours: str) -> Judgement:
    """Is it between the limits? Decided when the whole interval is, or none of it is."""
    return _judgement(estimate, low, high, ours, f"the interval reaches over an end of {low:.3g} to {high:.3g}")


def _judgement(estimate: Estimate, low: float, high: float, ours: str, unclear: str) -> Judgement:
    needed = seeds_needed(estimate, low, high)
    if estimate.n < MIN_SEEDS:
        return Judgement(Verdict.UNDECIDED, ours, estimate.n, too_few(estimate.n), estimate, needed)
    if not estimate.is_bounded:
        return Judgement(Verdict.UNDECIDED, ours, estimate.n, "there is no finite interval", estimate)
    if estimate.is_above(low) and estimate.is_below(high):
        return Judgement(Verdict.REPRODUCED, ours, estimate.n, "", estimate)
    if estimate.is_below(low) or estimate.is_above(high):
        return Judgement(Verdict.CONTRADICTED, ours, estimate.n, "", estimate)
    return Judgement(Verdict.UNDECIDED, ours, estimate.n, unclear, estimate, needed)


def all_positive(
    make: Callable[[float], Sequence[Estimate]], links: Sequence[str], ours: str, least: int = MIN_SEEDS
) -> Judgement:
    """Are several differences all positive, such as the steps of an order?

    All 95% intervals must be above zero (that all hold by chance is at most as likely as that one does). It is
    contradicted when an interval is below zero, and there, where one of k is enough, each is at 1 - 0.05 / k.
    """
    estimates = make(0.95)
    n, confidence = min(estimate.n for estimate in estimates), 1 - 0.05 / len(estimates)
    strict = make(confidence)
    against = [link for link, estimate in zip(links, strict, strict=True) if estimate.is_below(0)]
    if all(estimate.value > 0 for estimate in estimates):
        seeds = [seeds_needed(estimate, 0.0) for estimate in estimates]
        known = [number for number in seeds if number is not None]
        needed = max(least, *known) if len(known) == len(seeds) else None
    else:  # for one of those that are negative now to be so clearly
        seeds = [seeds_needed(estimate, 0.0, confidence=confidence) for estimate in strict if estimate.value < 0]
        known = [number for number in seeds if number is not None]
        needed = max(least, min(known)) if known else None
    if n < least:
        return Judgement(Verdict.UNDECIDED, ours, n, too_few(n, least), needed=needed)
    if all(estimate.is_above(0) for estimate in estimates):
        return Judgement(Verdict.REPRODUCED, ours, n)
    if against:
        return Judgement(Verdict.CONTRADICTED, ours, n, f"not so: {', '.join(against)}")
    unclear = [link for link, estimate in zip(links, estimates, strict=True) if not estimate.is_above(0)]
    why = f"the interval covers both answers for {', '.join(unclear)}"
    return Judgement(Verdict.UNDECIDED, ours, n, why, needed=needed)


def takes(needed: int | None) -> str:
    """How many seeds it would take to decide, in words; empty where that is not known."""
    if needed is None:
        return ""
    return f"would take {f'more than {MOST_SEEDS}' if needed >= MOST_SEEDS else f'about {needed}'} seeds"


def too_few(n: int, least: int = MIN_SEEDS) -> str:
    """Why so few seeds decide nothing."""
    return f"{count(n, 'seed')}, at least {least} are needed"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper."""

    id: str  #: its short name, such as "C5"
    text: str  #: what is claimed
    decided_by: str  #: the quantity that decides
    judge: Judge  #: gives a finding for each part of it
    is_of_exploration: bool = False  #: whether exploration runs decide it


@dataclass(frozen=True)
class ClaimResult:
    """A claim with what the runs say about it."""

    claim: Claim  #: the claim
    protocol: str  #: the label of the protocol of the runs
    findings: tuple[Finding, ...]  #: its parts

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole claim."""
        return combine(self.findings)

    @property
    def needed(self) -> int | None:
        """How many seeds would decide what is undecided of it, by the spread at hand; None if that is not known."""
        open_parts = [f.judgement for f in self.findings if f.counts and f.verdict is Verdict.UNDECIDED]
        known = [part.needed for part in open_parts if part.needed is not None]
        return max(known) if known and len(known) == len(open_parts) else None

    @property
    def takes(self) -> str:
        """What it would take to decide it, in words; empty if it is decided, or that is not known."""
        return takes(self.needed) if self.verdict is Verdict.UNDECIDED else ""


CLAIMS: dict[str, Claim] = {}


def register(claim_id: str, text: str, decided_by: str, is_of_exploration: bool = False) -> Callable[[Judge], Judge]:
    """Add a claim.

    Raises:
        ValueError: the id is taken.
    """
    if claim_id in CLAIMS:
        raise ValueError(f"expected a new id for a claim, got {claim_id!r} twice")

    def add(judge: Judge) -> Judge:
        CLAIMS[claim_id] = Claim(claim_id, text, decided_by, judge, is_of_exploration)
        return judge

    return add


def evaluate_claims(
    results: Results,
    protocol: str = "released",
    bench: Mapping[str, Any] | None = None,
    seed: int = 0,
    only: Collection[str] | None = None,
) -> list[ClaimResult]:
    """Judge every claim by the finished runs of one protocol, or those whose ids are in `only`.

    Parts that do not count (datasets that are not in the paper) are left out where there are no runs for them. `bench`
    is a benchmark's results as parsed JSON, for the claim about time; the bootstrap's randomness starts at `seed`.

    Raises:
        KeyError: there is no claim of such an id.
    """
    evidence = Evidence(results, protocol, bench, seed)
    asked = CLAIMS if only is None else only
    claims = sorted((CLAIMS[claim_id] for claim_id in asked), key=lambda claim: int(claim.id.removeprefix("C")))
    found = {claim: [each for each in claim.judge(evidence) if each.counts or each.judgement.ours] for claim in claims}
    labels = {False: protocol, True: evidence.exploring}
    return [ClaimResult(claim, labels[claim.is_of_exploration], tuple(parts)) for claim, parts in found.items()]


@dataclass(frozen=True)
class Evidence:
    """What the claims are judged by."""

    results: Results  #: all runs that were loaded
    protocol: str  #: the label of the protocol whose runs count
    bench: Mapping[str, Any] | None = None  #: a benchmark's results as parsed JSON, if there are any
    seed: int = 0  #: where the bootstrap's randomness starts
    known_areas: dict[tuple[str, str, str], BySeed] = field(default_factory=dict, repr=False, compare=False)

    @property
    def exploring(self) -> str:
        """The label of the protocol whose exploration runs count."""
        return exploration_label(self.results, self.protocol)

    def rng(self) -> np.random.Generator:
        """A generator that starts anew, so that no verdict depends on the order of the claims."""
        return np.random.default_rng(self.seed)

    def conditions(self, condition: str, paper: Sequence[str] = PAPER_DATASETS) -> list[Condition]:
        """A condition on each dataset to judge it on: those of the paper, and others that there are runs of."""
        runs = self.results.select(experiment="controlled", condition=condition, protocol=self.protocol).finished()
        others = {run.dataset for run in runs if run.dataset} - set(paper)
        names = (*paper, *sorted(others, key=lambda name: rank(DATASETS, name)))
        return [Condition(self, condition, name, name in paper) for name in names]

    def environments(self) -> list[tuple[str, bool]]:
        """The environments to judge exploration in: the paper's (True), and others that there are runs of (False)."""
        runs = self.results.select(experiment="doorkey", protocol=self.exploring).finished()
        return [(PAPER_ENVIRONMENT, True), *((n, False) for n in sorted(set(map(_env_id, runs)) - {PAPER_ENVIRONMENT}))]

    def exploration(self, env_id: str, condition: str, method: str) -> tuple[RunData, ...]:
        """The finished exploration runs of one kind, ordered by seed; raises NoRunsError where there is none."""
        found = self.results.select(experiment="doorkey", condition=condition, method=method)
        found = Results(tuple(run for run in found if _env_id(run) == env_id))
        return self.checked(found, f"{env_id}, {title(condition)}, {title(method)}", REWARDS, self.exploring)

    def checked(self, found: Results, what: str, columns: Sequence[str], label: str) -> tuple[RunData, ...]:
        """The runs of one protocol that have these columns; raises TooLittleDataError where there is none."""
        runs = usable(found.select(protocol=label).runs, columns)
        if runs:
            return runs
        elsewhere = Results(usable(found.runs, columns)).protocols()
        others = nearest_first(other for other in elsewhere if other != label)
        hint = f"; there are some under {'; '.join(others[:SHOWN])}" if others else ""
        if lacking := sum(run.finished for run in found.select(protocol=label)):
            number = count(lacking, "finished run")
            raise TooLittleDataError(f"{number} of {what} without all of {', '.join(columns)}{hint}")
        raise NoRunsError(f"no finished runs of {what}{hint}")


@dataclass(frozen=True)
class Condition:
    """The finished controlled runs on one dataset under one condition."""

    evidence: Evidence  #: what it is part of
    condition: str  #: such as "noise"
    dataset: str  #: such as "mnist"
    counts: bool = True  #: whether it decides: the datasets of the paper do

    @property
    def title(self) -> str:
        """Its name, such as "Noise+MNIST"."""
        return f"{title(self.condition)}+{title(self.dataset)}"

    def find(self, part: str, paper: str, judge: Callable[..., Judgement], *of: Any, counts: bool = True) -> Finding:
        """Judge a part of a claim here; the function gets the condition first."""
        return find(f"{title(self.dataset)}: {part}", paper, judge, self, *of, counts=counts and self.counts)

    def runs(self, method: str) -> tuple[RunData, ...]:
        """The runs of a signal, ordered by seed; raises NoRunsError where there is none."""
        own = self.evidence.results.select(experiment="controlled", dataset=self.dataset, condition=self.condition)
        what = f"{self.title}, {title(method)}"
        return self.evidence.checked(own.select(method=method), what, NEEDED, self.evidence.protocol)

    def values(self, method: str, measure: Callable[[RunData], float]) -> BySeed:
        """A number for each run of a signal, by seed."""
        runs = self.runs(method)
        return finite({run.seed: float(measure(run)) for run in runs}, runs[0])

    def areas(self, method: str) -> BySeed:
        """The area under the test-loss curve of each run of a signal, by seed; computed once."""
        known, key = self.evidence.known_areas, (self.condition, self.dataset, method)
        if key not in known:
            runs = self.runs(method)
            known[key] = finite(areas(runs), runs[0])
        return known[key]


def exploration_label(results: Results, protocol: str) -> str:
    """The protocol whose exploration runs count where the others are of this one.

    Runs of the released protocol take days. Where there are none, those of the protocol with the most of them count.
    """
    labels = [
        run.protocol for run in results.select(experiment="doorkey").finished() if _env_id(run) == PAPER_ENVIRONMENT
    ]
    if protocol != STANDARD or protocol in labels or not labels:
        return protocol
    return max(nearest_first(set(labels)), key=labels.count)


def _env_id(run: RunData) -> str:
    """The environment of an exploration run."""
    return str(run.spec.params.get("env_id") or run.spec.protocol.get("env_id") or PAPER_ENVIRONMENT)


def paired(first: BySeed, second: BySeed) -> tuple[Array, Array]:
    """The values of the seeds that both have: [n], [n]."""
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        raise TooLittleDataError("the two methods share no seed")
    return np.array([first[seed] for seed in seeds]), np.array([second[seed] for seed in seeds])


def finite(values: BySeed, run: RunData) -> BySeed:
    """Make sure that no run has diverged: its number would decide by being absent."""
    wrong = [str(seed) for seed, value in values.items() if not math.isfinite(value)]
    if wrong:
        what = f"{run.group.title}, {title(run.method)}"
        raise DivergedError(f"the loss of {what} is not finite for seed {', '.join(wrong[:5])}")
    return values
