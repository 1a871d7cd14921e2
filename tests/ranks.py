"""Processes that train together."""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import socket
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

P = ParamSpec("P")


def leaving_together(work: Callable[Concatenate[int, P], None]) -> Callable[Concatenate[int, P], None]:
    """Let a process end as soon as all have done their work, without taking the interpreter down.

    Threads of a group may outlive it (`examples/ddp.py` says why), and one that asks for the interpreter's lock when
    that is gone aborts the process. How torch parts is not what these tests are about.
    """

    @functools.wraps(work)
    def wrapped(rank: int, *args: P.args, **kwargs: P.kwargs) -> None:
        torch.set_num_threads(1)
        work(rank, *args, **kwargs)
        if dist.is_initialized():
            dist.barrier()  # one that leaves early may take the other down
            dist.destroy_process_group()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    return wrapped


def run_ranks(work: Callable[..., None], *args: Any, world: int = 2) -> None:
    """Call `work(rank, *args)` in processes of its own, and wait for them.

    They come from a process that has imported torch once; each of its own would take seconds for that. It keeps the
    environment that it was started in.
    """
    own = "tests.grads.sharded_errors"  # loads transformers; left out where that is not installed
    multiprocessing.set_forkserver_preload(["torch._dynamo", "headway", "pytest", "tests.ranks", own])
    mp.start_processes(work, args, nprocs=world, start_method="forkserver")


def join_pair(rank: int, folder: str) -> None:
    """Be one of two processes, which find each other by a file in a folder."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)


def free_port() -> int:
    """A port that is free, and not one of those that systems give to connections of other programs meanwhile.

    Trainers seed Python's own generator, so it is not drawn from that.
    """
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("expected a free port, got 100 that are taken")
