"""Cases that are small enough for a test, and a result that nothing had to be measured for."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.cost.cases import Case, Transformer, cnn, images, mlp, sequences
from benchmarks.cost.results import CaseResult, Machine, Memory, Result, Skipped, Spread, Timing

MLP = Case("a", "MLP 6-8-4", 5, lambda: mlp(6, 8, 4), images(6, classes=4), goal=1.7, memory_batches=(5,))
CNN = Case(
    key="c",
    title="CNN 3-4 on 2x4x4, 64-6-3",
    batch=5,
    model=lambda: cnn((2, 3, 4), side=4, hidden=6, classes=3),
    data=images(2, 4, 4, classes=3),
    goal=1.6,
    memory_batches=(5,),
)
GPT = Case(
    key="d",
    title="transformer, 2 layers, 6 positions",
    batch=3,
    model=lambda: Transformer(2, width=8, heads=2, positions=6, vocabulary=11),
    data=sequences(6, 11),
    goal=1.4,
    memory_batches=(3,),
)
CASES = {"mlp": MLP, "cnn": CNN, "gpt": GPT}

MACHINE = Machine("2026-01-31", "A processor", 2, 2, "3.11.7", {"headway": "0.1.0", "torch": "2.13.0"})


def timing(variant: str, ratio: float) -> Timing:
    seconds = Spread(0.009 * ratio, 0.010 * ratio, 0.012 * ratio)
    return Timing(variant, 7, seconds, Spread(0.9 * ratio, ratio, 1.1 * ratio), ratio)


def result() -> Result:
    """Two cases: one within its goals, one beyond them and without peers."""
    first = CaseResult(
        key="a",
        title="MLP 6-8-4",
        batch=256,
        parameters=2**20,
        goal=1.7,
        timings=(timing("plain", 1), timing("headway", 1.5), timing("backpack", 60)),
        memories=(
            Memory("plain", 256, 3 * 2**20, 2**21),
            Memory("headway", 256, 6 * 2**20, 2**21 + 2**19, 3 * 2**20, 2**19),
            Memory("backpack", 256, 6 * 2**20, 200 * 2**20, 3 * 2**20, 198 * 2**20),
        ),
        peer_goal=25,
        busy=0.0,
    )
    second = CaseResult(
        key="d",
        title="transformer, 2 layers, 6 positions",
        batch=32,
        parameters=2**22,
        goal=1.4,
        timings=(timing("plain", 1), timing("headway", 1.6)),
        memories=(
            Memory("plain", 32, 3 * 2**22, 2**22),
            Memory("headway", 32, 8 * 2**22, 2**22, 7 * 2**22, 0),
        ),
        skipped=(
            Skipped("opacus", "no rule for LayerNorm"),
            Skipped("backpack", "no rule for LayerNorm"),
            Skipped("backpack", "too large", 4096),
        ),
        busy=0.7,
    )
    return Result(MACHINE, {"seconds": 60.0}, (first, second))


def interrupted() -> Result:
    return replace(result(), complete=False)
