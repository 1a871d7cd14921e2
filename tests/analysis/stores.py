"""Run stores with made-up runs, for all tests of the analysis.

Everything is written through `RunStore`, so that the files are those of real runs:

    store = RunStore(tmp_path)
    for spec in controlled_specs(seeds=3, epochs=20):
        finish(store, spec)                  # rows made up from the spec, always the same
    fail(store, controlled_spec(seed=7))     # failed half-way, with a traceback
    stop(store, controlled_spec(seed=8))     # stopped half-way: interrupted
    damage(store, some_spec)                 # a byte of its metrics has changed
    write_mixed_store(tmp_path)              # some of everything
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.runs import Run, RunSpec, RunStore
from headway.study.protocols.labels import PRESETS
from headway.study.protocols.names import GROUPS

SIX = ("uniform", "curiosity", "gmc", "norm_last", "norm_all", "delta_loss")
TEST_SAMPLES = 25_600
HARDNESS = {"curriculum": (0.05, 0.3, 0.6, 0.5), "noise": (0.02, 0.7, 1.1, 1.39)}
"""The losses at which the four groups end."""
PULL = {
    "uniform": 0.0,
    "curiosity": 6.0,
    "gmc": 0.2,
    "norm_last": 5.0,
    "norm_all": 3.0,
    "delta_loss": 1.0,
    "dot": 0.1,
    "cosine": -2.0,
    "projection": 0.3,
}
"""How strongly each signal is drawn to high losses."""


def controlled_spec(
    dataset: str = "mnist",
    condition: str = "noise",
    method: str = "gmc",
    seed: int = 0,
    epochs: int | None = None,
    protocol: str = "released",
    **changes: Any,
) -> RunSpec:
    """A run of the controlled study; without `epochs` it is as long as its protocol says."""
    fields = {**PRESETS["controlled"][protocol], **changes}
    long = (dataset, condition) == ("mnist", "curriculum")
    length = epochs or fields["epochs_curriculum_mnist" if long else "epochs"]
    params = {"dataset": dataset, "epochs": length}
    return RunSpec(
        experiment="controlled", condition=condition, method=method, seed=seed, params=params, protocol=fields
    )


def controlled_specs(
    datasets: Sequence[str] = ("mnist",),
    conditions: Sequence[str] = ("curriculum", "noise"),
    methods: Sequence[str] = SIX,
    seeds: int = 3,
    **options: Any,
) -> list[RunSpec]:
    """All combinations; the options are those of `controlled_spec`."""
    return [
        controlled_spec(dataset, condition, method, seed, **options)
        for dataset in datasets
        for condition in conditions
        for method in methods
        for seed in range(seeds)
    ]


def controlled_rows(spec: RunSpec) -> list[dict[str, Any]]:
    """Rows as a controlled run logs them: losses fall to a level for each group, shares follow the method's pull."""
    rng = np.random.default_rng([spec.seed, *spec.method.encode()])
    epochs = int(str(spec.params["epochs"]))
    time = np.arange(1, epochs + 1)[:, None] / epochs
    group_of_arm = [0, 1, 2, 3]
    if spec.condition == "curriculum":
        group_of_arm = [number for number, group in enumerate(GROUPS) for _ in group]
    end = np.array(HARDNESS[spec.condition])[group_of_arm]
    arms = len(end)
    waste = 1 + 0.02 * abs(PULL[spec.method])
    loss = waste * (end + (2.3 - end) * np.exp(-8 * time)) * np.exp(rng.normal(0, 0.01, (epochs, arms)))
    shares = np.exp(PULL[spec.method] * time * (end - end.mean()))
    shares /= shares.sum(1, keepdims=True)
    train = np.array([rng.multinomial(60_000, share) for share in shares])
    test = rng.multinomial(TEST_SAMPLES, np.full(arms, 1 / arms), size=epochs)
    mean = (loss * test).sum(1) / TEST_SAMPLES
    entropy = -(shares * np.log(shares)).sum(1)
    has_moments = spec.method in ("gmc", "dot", "cosine", "projection")
    return [
        {
            "epoch": epoch + 1,
            "train_count": train[epoch].tolist(),
            "draw_share": (train[epoch] / train[epoch].sum()).tolist(),
            "train_loss": (loss[epoch] * 0.9).tolist(),
            "score_mean": (loss[epoch] ** 2).tolist(),
            "policy_entropy": float(entropy[epoch]),
            **({"under_floor": 0.9 + 0.1 * epoch / epochs} if has_moments else {}),
            "test_count": test[epoch].tolist(),
            "test_loss": loss[epoch].tolist(),
            "test_loss_mean": float(mean[epoch]),
        }
        for epoch in range(epochs)
    ]


DOORKEY_LEVELS = {
    "none": {"ppo": 9.0, "icm+gmc": 8.7, "icm": 8.4, "gmc": 8.1, "forward": 7.5, "rnd": 7.8, "rnd+gmc": 8.0},
    "door": {"ppo": 7.0, "icm+gmc": 8.3, "icm": 6.0, "gmc": 7.7, "forward": 4.0, "rnd": 6.5, "rnd+gmc": 7.5},
}
"""The scaled returns at which the methods end."""


def doorkey_spec(
    condition: str = "none", method: str = "ppo", seed: int = 0, steps: int = 40 * 2048, **params: Any
) -> RunSpec:
    """A run of the exploration study."""
    values = {"env_id": "MiniGrid-DoorKey-8x8-v0", "preset": "released", "steps": steps, **params}
    protocol = PRESETS["doorkey"][values["preset"]]
    return RunSpec(
        experiment="doorkey", condition=condition, method=method, seed=seed, params=values, protocol=protocol
    )


def doorkey_specs(
    conditions: Sequence[str] = ("none", "door"),
    methods: Sequence[str] = ("ppo", "icm", "gmc", "icm+gmc"),
    seeds: int = 3,
    **options: Any,
) -> list[RunSpec]:
    """All combinations; the options are those of `doorkey_spec`."""
    return [
        doorkey_spec(condition, method, seed, **options)
        for condition in conditions
        for method in methods
        for seed in range(seeds)
    ]


def doorkey_rows(spec: RunSpec) -> list[dict[str, Any]]:
    """Rows as an exploration run logs them, one per rollout of 2048 steps."""
    rng = np.random.default_rng([spec.seed, *spec.method.encode()])
    rollouts = int(str(spec.params["steps"])) // 2048
    level = DOORKEY_LEVELS[spec.condition].get(spec.method, 7.2)
    rise = 1 / (1 + np.exp(-12 * (np.arange(rollouts) / rollouts - 0.3 - 0.1 * rng.random())))
    returns = np.clip(level * rise + rng.normal(0, 0.2, rollouts), 0, 10)
    noise = 0.1 if spec.condition == "door" else 0.0
    names = ("policy_loss", "value_loss", "entropy", "clip_fraction", "explained_variance", "approx_kl")
    names += ("extrinsic_mean", "extrinsic_std", "intrinsic_mean", "intrinsic_std", "predictor_loss")
    names += ("forward_loss", "inverse_loss", "score_mean", "score_std")
    return [
        {
            "env_steps": (rollout + 1) * 2048,
            "episodes": (rollout + 1) * 8,
            "episode_return": float(returns[rollout]) if rollout else float("nan"),
            "episode_length": 640 - 60 * float(returns[rollout]),
            **{name: float(rng.random()) for name in names},
            "noise_reward_share": noise * float(rng.random()),
            "noise_time_share": noise * float(rng.random()),
            "steps_per_second": 400.0,
        }
        for rollout in range(rollouts)
    ]


def rows_of(spec: RunSpec) -> list[dict[str, Any]]:
    """The made-up rows of a run."""
    return doorkey_rows(spec) if spec.experiment == "doorkey" else controlled_rows(spec)


def begin(store: RunStore, spec: RunSpec, rows: Sequence[dict[str, Any]], total: int | None = None) -> Run:
    """Claim a run and log the rows that it does not have yet; it is running until it is ended."""
    run = store.lock(spec)
    assert run is not None, f"{spec} is taken"
    run.restore()
    done = max(map(len, run.columns().values()), default=0)
    for row in rows[done:]:
        run.log(row)
    run.progress(len(rows), total or len(rows), speed=2.0)
    return run


def half(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The first half of the rows."""
    return rows[: len(rows) // 2]


def start(store: RunStore, spec: RunSpec) -> Run:
    """A run that is half-way and still running; end it with `.interrupt()`."""
    rows = rows_of(spec)
    run = begin(store, spec, half(rows), len(rows))
    run.checkpoint(len(rows) // 2, lambda file: file.write(b"state"))
    return run


def finish(store: RunStore, spec: RunSpec, rows: Sequence[dict[str, Any]] | None = None) -> str:
    """A finished run; returns its id."""
    run = begin(store, spec, rows_of(spec) if rows is None else rows)
    provenance = {"torch": "2.13.0", "dataset": spec.params.get("dataset"), "note": "made up"}
    run.save("provenance.json", lambda file: file.write(json.dumps(provenance).encode()))
    run.finish()
    return spec.run_id


def finish_all(store: RunStore, specs: Iterable[RunSpec]) -> None:
    for spec in specs:
        finish(store, spec)


def fail(store: RunStore, spec: RunSpec, message: str = "loss is not finite <b>&") -> str:
    """A run that failed half-way; returns its id."""
    run = start(store, spec)
    try:
        raise RuntimeError(message)
    except RuntimeError as error:
        run.fail(error)
    return spec.run_id


def stop(store: RunStore, spec: RunSpec) -> str:
    """A run that was stopped half-way; returns its id."""
    start(store, spec).interrupt("stopped on request")
    return spec.run_id


def damage(store: RunStore, spec: RunSpec, name: str = "metrics.parquet") -> str:
    """Change a byte in the middle of a file of a run; returns the id."""
    path = store.folder(spec.run_id) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    return spec.run_id


def write_mixed_store(root: Path, epochs: int = 20, seeds: int = 3) -> RunStore:
    """A store with finished runs of both experiments, and runs that are missing, failed, stopped, pending or corrupt.

    Controlled: MNIST, both conditions, six signals, seeds 0 to `seeds` - 1, all finished; GMC in the noise condition
    has four more seeds: 100 failed, 101 stopped half-way, 102 has damaged metrics, 103 was never started. One run's
    spec is unreadable, and one run's status was written by a newer version. DoorKey: both conditions, four methods.
    """
    store = RunStore(root)
    finish_all(store, controlled_specs(seeds=seeds, epochs=epochs))
    finish_all(store, doorkey_specs(seeds=seeds))
    fail(store, controlled_spec(seed=100, epochs=epochs))
    stop(store, controlled_spec(seed=101, epochs=epochs))
    broken = controlled_spec(seed=102, epochs=epochs)
    finish(store, broken)
    damage(store, broken)
    store.add(controlled_spec(seed=103, epochs=epochs))
    unreadable = finish(store, controlled_spec(seed=104, epochs=epochs))
    (store.folder(unreadable) / "spec.json").write_text("{")
    newer = finish(store, controlled_spec(seed=105, epochs=epochs))
    status = store.folder(newer) / "status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "schema": 99}))
    return store
