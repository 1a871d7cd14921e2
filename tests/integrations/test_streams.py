"""Streams of webdataset and of torchdata nodes: shares, workers and resuming, with the real libraries."""

from __future__ import annotations

import copy
import io
import itertools
import multiprocessing
import os
import signal
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.random  # noqa: F401  (workers that are forked must not be the first to import it)
import pytest
import torch

pytest.importorskip("webdataset")
pytest.importorskip("torchdata")

import webdataset
from torchdata.nodes import IterableWrapper
from torchdata.stateful_dataloader import StatefulDataLoader

from headway.selection import Mixture, SourceStream

pytestmark = pytest.mark.filterwarnings("ignore:.set_vital. is deprecated")  # torchdata calls it in newer torch
SHARES = {"a": 0.7, "b": 0.2, "c": 0.08, "d": 0.02}
LENGTH = 200
Sources = dict[str, Any]


def number_of(sample: dict[str, bytes]) -> int:
    return int(sample["number"])


def tars(folder: Path) -> Sources:
    """A pipeline for each source, over a tar of its own numbers."""
    found: Sources = {}
    for place, name in enumerate(SHARES):
        path = folder / f"{name}.tar"
        with tarfile.open(path, "w") as tar:
            for number in range(1000 * place, 1000 * place + LENGTH):
                entry = tarfile.TarInfo(f"{number:06}.number")
                content = str(number).encode()
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        found[name] = webdataset.WebDataset(str(path), shardshuffle=False).map(number_of)
    return found


def nodes(folder: Path) -> Sources:
    """A node for each source, over its own numbers."""
    return {name: IterableWrapper(range(1000 * place, 1000 * place + LENGTH)) for place, name in enumerate(SHARES)}


KINDS = [tars, nodes]


def loader_of(sources: Sources, **options: Any) -> StatefulDataLoader:
    stream = SourceStream(sources, Mixture(list(SHARES), prior=SHARES), **options)
    return StatefulDataLoader(stream, 16, num_workers=2, collate_fn=list)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_follow_the_shares(tmp_path: Path, kind: Callable[[Path], Sources]) -> None:
    samples = list(itertools.chain(*itertools.islice(loader_of(kind(tmp_path)), 200)))
    assert all(number // 1000 == source for number, source in samples)
    counts, total = Counter(source for _, source in samples), len(samples)
    for source, share in enumerate(SHARES.values()):
        assert abs(counts[source] - share * total) < 4 * (total * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_workers_divide_a_source(tmp_path: Path, kind: Callable[[Path], Sources]) -> None:
    samples = itertools.chain(*loader_of(kind(tmp_path), exhausted="drop"))
    every = [1000 * place + number for place in range(len(SHARES)) for number in range(LENGTH)]
    assert sorted(number for number, _ in samples) == every


def draw_and_be_killed(sources: Sources, path: str) -> None:
    loader = loader_of(sources)
    for number, _ in enumerate(loader):
        if number == 12:
            torch.save(copy.deepcopy(loader.state_dict()), path)
        if number == 15:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_continues_with_the_same_samples(tmp_path: Path, kind: Callable[[Path], Sources]) -> None:
    path = str(tmp_path / "state.pt")
    arguments = (kind(tmp_path), path)
    process = multiprocessing.get_context("fork").Process(target=draw_and_be_killed, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    whole = list(itertools.islice(loader_of(kind(tmp_path)), 60))
    again = loader_of(kind(tmp_path))
    again.load_state_dict(torch.load(path, weights_only=False))
    assert list(itertools.islice(again, 47)) == whole[13:]
