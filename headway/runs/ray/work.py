"""The worker's side: one attempt at one run, as a task of Ray."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from headway import __version__
from headway.errors import HeadwayError
from headway.runs import RunStore
from headway.runs.context import Context
from headway.runs.events import Ended
from headway.runs.experiments import register_experiments
from headway.runs.queue import Task
from headway.runs.ray.board import Link
from headway.runs.ray.cluster import import_ray
from headway.runs.worker import Trouble, use_threads, work

SEARCH_SECONDS = 5.0
"""How long a worker looks for a run in the store before it says that the store is not there: networks take time."""


@dataclass(frozen=True)
class RaySetup:
    """What a worker needs to know.

    Attributes:
        store: where the runs are kept.
        context: what they may use.
        experiments: the modules of the experiments by name.
        datasets: references to the datasets that the runs need, by name; Ray brings each once to a node.
        versions: of the packages that decide the numbers, where the campaign was started.
    """

    store: RunStore
    context: Context
    experiments: Mapping[str, str]
    datasets: Mapping[str, Any]
    versions: Mapping[str, str]


def carry_out(task: Task, attempt: int, setup: RaySetup, board: Any) -> Ended | Trouble:
    """Attempt a run. Runs on a node of the cluster.

    Args:
        task: the run.
        attempt: a number that tells this attempt apart from others.
        setup: what the worker needs to know.
        board: where it tells what happens.

    Returns:
        how it ended, or what is wrong that concerns every run.
    """
    ray = import_ray()
    link = Link(board, attempt, socket.gethostname(), ray)
    try:
        if trouble := _unfit(setup, task):
            return Trouble(trouble)
        use_threads(setup.context.threads)
        register_experiments(setup.experiments)
        datasets = {name: ray.get(reference) for name, reference in setup.datasets.items()}
        context = replace(setup.context, should_stop=link.stopping.is_set, datasets=datasets)
        return work(task, setup.store, context, link.tell)
    finally:
        link.close()


def versions() -> dict[str, str]:
    """The versions of what decides the numbers of a run, without the build: torch has one for every kind of machine."""
    return {"headway": __version__, "torch": version("torch").split("+")[0]}


def _unfit(setup: RaySetup, task: Task) -> str:
    """Why this node cannot carry out runs; empty when it can."""
    here = socket.gethostname()
    own = versions()
    for name, wanted in setup.versions.items():
        if own[name] != wanted:
            return (
                f"expected {name} {wanted} on every node, as where the campaign was started, got {own[name]} on "
                f"{here}; install the same version there"
            )
    try:
        found = _find(setup.store, task)
    except HeadwayError as error:
        return str(error)
    if not found:
        return (
            f"expected the run store {setup.store.place} on every node, got none on {here}; put it on a file system "
            f"that all nodes share, or use a URL such as s3://bucket/runs"
        )
    return ""


def _find(store: RunStore, task: Task) -> bool:
    """Look for the run's folder: a worker without the shared file system would make a store of its own, and lose it."""
    deadline = time.monotonic() + SEARCH_SECONDS
    while True:
        if store.has(task.spec.run_id):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
