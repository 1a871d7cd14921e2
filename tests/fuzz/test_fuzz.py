"""Bytes that nobody meant: mutations by hypothesis, and a short search by atheris where it is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
EXAMPLES = {"store": 40, "command": 60, "archive": 100}
SECONDS = 3


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A seed with some bytes changed, cut out, repeated or cut off; or something else altogether."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=200))
    content = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(0, len(content) - 1)))
        match draw(st.integers(0, 3)):
            case 0:
                content[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del content[place : place + draw(st.integers(1, 16))]
            case 2:
                content[place:place] = content[place : place + draw(st.integers(1, 16))]
            case _:
                content[place:place] = draw(st.sampled_from([b"\0", b"\xff" * 8, b"{", b"-1", b"9" * 20, b"..", b"\n"]))
    return bytes(content[: draw(st.integers(0, len(content)))]) if draw(st.booleans()) else bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_mutations(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=EXAMPLES.get(name, 200), suppress_health_check=list(HealthCheck))
    @given(mutated(target.seeds()))
    def feed(data: bytes) -> None:
        target.feed(data)

    feed()


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_taken(name: str) -> None:
    for seed in TARGETS[name].seeds():
        TARGETS[name].feed(seed)


def search(name: str) -> str:
    """Search for a few seconds in a process of its own; return what it said if it found something."""
    command = [sys.executable, "-m", "tests.fuzz.run", name, str(SECONDS)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    return result.stdout[-4000:] + result.stderr[-4000:] if result.returncode else ""


@pytest.mark.slow
def test_a_short_search() -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed; make fuzz installs it")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(TARGETS, pool.map(search, TARGETS), strict=True))
    assert {name: said for name, said in found.items() if said} == {}
