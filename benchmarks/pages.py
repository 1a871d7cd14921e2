"""Puts stored measurements, and how far the study has come, into the docs: `python benchmarks/pages.py [--check]`.

Each page has a place between two marks, such as `<!-- sampler: begin -->`. With `--check` nothing is written, and the
exit code is 1 if a page says anything else than the files in `benchmarks/results` and `results`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from benchmarks.common import quoted
from headway.analysis import arena_tables, load_results
from headway.analysis.comparison import MethodRow, method_rows
from headway.analysis.report.overview import notes_of
from headway.analysis.table import Table, ranges
from headway.commands.campaign_file import read_campaign_file
from headway.data import Dataset, Split
from headway.rl.reward import IntrinsicReward
from headway.runs.experiments import Context
from headway.runs.text import count
from headway.selection import Actor
from headway.study import doorkey as exploration
from headway.study.controlled_trial import Trial
from headway.study.protocols.classification import Protocol
from headway.study.protocols.fields import Fields
from headway.study.protocols.minigrid import ExplorationProtocol
from headway.study.protocols.names import MARK, title

ROOT = Path(__file__).parent.parent
SIGNALS = ("uniform", "curiosity", "gmc", "norm_last", "norm_all", "delta_loss", "gmc_hard", "gmc_soft")
ENOUGH = 3
"""Seeds without which nothing is said of a signal in the README."""
PUBLISHED_BATCH = 0.38
"""Seconds per batch of the authors' program with GMC on MNIST, on two cores of this kind of machine."""


def stored(name: str) -> dict[str, Any]:
    """What a benchmark has measured."""
    content: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
    return content


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    return Table(head, rows).markdown()


def sampler() -> str:
    """Indices per second."""
    rates = stored("sampler")["indices_per_second"]
    names = {
        "4 sources": "4 sources",
        "100 sources": "100 sources",
        "with replacement": "4 sources, with replacement",
        "4 sources, in batches of 1024": "4 sources, in batches of 1024",
        "first of 8 replicas": "4 sources, the first of 8 replicas",
        "update after every 1024": "4 sources, an update after every 1024",
        "the same, by policy gradient": "the same, by `PolicyGradient()`",
        "update after every 64": "4 sources, an update after every 64",
        "torch's WeightedRandomSampler": "torch's `WeightedRandomSampler`, beside it",
    }
    rows = [[text, *(f"{rates[name][kind] / 1e6:.2f}" for kind in ("cpu", "wall"))] for name, text in names.items()]
    return table(["", "million indices per second of processor time", "by the clock"], rows)


def check() -> str:
    """What the check of scores costs."""
    found = stored("check")
    rows = [[row["case"], row["title"], f"{row['ratio']:.2f}", f"{row['share']:.2%}"] for row in found["rows"]]
    steps = f"{found['steps']:,}"
    return table(["case", "model", "checked step over unchecked", f"share of {steps} steps, 11 of them checked"], rows)


def kernels() -> str:
    """What the Triton kernel asks of devices, and the least time of a layer."""
    found = stored("kernels")
    head = ["architecture", "products", "tile", "warps", "registers", "spilled bytes", "shared bytes"]
    numbers = ["warps", "registers", "spilled", "shared"]
    rows = [
        [f"sm_{row['architecture']}", row["products"], row["tile"], *(str(row[name]) for name in numbers)]
        for row in found["compiled"]
    ]
    parts = ["products", "memory", "cache", "elementwise", "buffer"]
    times = [[row["device"], row["layer"], *(f"{row[part]:.2f}" for part in parts)] for row in found["roofline"]]
    return f"{table(head, rows)}\n\n{table(['device', 'layer', *(f'{part}, ms' for part in parts)], times)}"


def huggingface() -> str:
    """Tokens per second that are kept."""
    models = {"example": "the example's, batch 32", "width 128": "GPT-2, width 128, 4 layers, 128 tokens, batch 8"}
    kinds = {"GMC": "GMC", "GMC, sampler and monitor": "GMC, gradient norm, sampler and monitor"}
    found = stored("huggingface")["kept"]
    rows = []
    for which, model in models.items():
        for kind, text in kinds.items():
            own = found[which][kind]
            rows.append([model, text, f"{own['median']:.0%}", f"{own['low']:.0%} to {own['high']:.0%}"])
    return table(["model", "", "tokens per second kept", "quartiles of single steps"], rows)


def steady() -> str:
    """A steady step with scores over a plain step."""
    rows = []
    for row in stored("steady")["rows"]:
        low, high = row["quartiles"]
        verdict = "met" if row["ratio"] <= row["goal"] else "missed"
        ratio = f"{row['ratio']:.2f}", f"{low:.2f} to {high:.2f}"
        rows.append([row["case"], row["title"], str(row["threads"]), *ratio, f"{row['goal']:.2f}: {verdict}"])
    return table(["case", "model", "threads", "over the plain step", "quartiles", "goal"], rows)


def sb3() -> str:
    """Steps per second that are kept."""
    rows = []
    for name, own in stored("sb3")["results"].items():
        environment, number = name.rsplit(", ", 1)
        ratios = f"{own['ratio']:.0%}", f"{own['least']:.0%} to {own['greatest']:.0%}"
        rows.append([environment, number.split()[0], *ratios])
    return table(["environment", "environments", "steps per second kept", "single rounds"], rows)


def bonus(name: str) -> str:
    """Returns with and without an intrinsic reward."""
    from benchmarks.bonus import table as returns_table  # needs Stable-Baselines3

    return returns_table(stored(name)["returns"])


def controlled() -> str:
    """Milliseconds per batch of the controlled study."""
    names = {
        "MNIST, one core": "controlled-mnist",
        "MNIST, two cores": "controlled-mnist-2-threads",
        "CIFAR-10, one core": "controlled-cifar10",
        "CIFAR-10, two cores": "controlled-cifar10-2-threads",
    }
    found = {text: stored(name)["seconds"] for text, name in names.items()}
    rows = []
    for signal in SIGNALS:
        cells = [f"{seconds[signal]['batch'] * 1000:.1f}" for seconds in found.values()]
        slower = found["MNIST, one core"][signal]["batch"] / found["MNIST, one core"]["curiosity"]["batch"]
        rows.append([title(signal), *cells, f"{slower:.2f}"])
    times = PUBLISHED_BATCH / found["MNIST, two cores"]["gmc"]["batch"]
    text = table(["ms per batch", *names, "against Curiosity"], rows)
    published = f"{1000 * PUBLISHED_BATCH:.0f} ms per batch with GMC on MNIST and two cores"
    return f"{text}\n\nThe published program takes {published}: {times:.0f} times as long."


def floors() -> str:
    """What floors under the second moment come to, relative to Uniform with the same seed."""
    found = stored("floors")
    places = [(dataset, condition) for condition in ("noise", "curriculum") for dataset in ("mnist", "cifar10")]
    uniform: dict[tuple[str, ...], list[float]] = {}
    own: dict[tuple[str, ...], dict[tuple[str, ...], list[tuple[float, float, float]]]] = {}
    for row in found["rows"]:
        if row["method"] == "uniform":
            uniform.setdefault((row["dataset"], row["condition"], row["seed"]), []).append(row["area"])
    for row in found["rows"]:
        place = row["dataset"], row["condition"]
        if row["method"] == "gmc" and (beside := uniform.get((*place, row["seed"]))):
            numbers = row["area"] / statistics.mean(beside), row["most_drawn"], row["under_floor"]
            own.setdefault((row["unit"], row["floor"], row["scores"]), {}).setdefault(place, []).append(numbers)
    rows = []
    for (unit, floor, scores), by_place in sorted(own.items()):
        cells = []
        for place in places:
            seeds = by_place.get(place, [])
            area, most = (statistics.mean(one[part] for one in seeds) if seeds else 0.0 for part in (0, 1))
            cells.append(f"{area:.3f}, {most:.0%} ({len(seeds)})" if seeds else "–")
        under = statistics.mean(numbers[2] for each in by_place.values() for numbers in each)
        rows.append([f"{floor:g}", unit, scores, *cells, f"{under:.0%}"])
    names = [f"{title(condition)}+{title(dataset)}" for dataset, condition in places]
    return table(["floor", "unit", "scores", *names, "under the floor"], rows)


def doorkey() -> str:
    """Steps per second of exploration runs."""
    found = stored("doorkey")
    rows = [
        [
            row["preset"],
            row["situation"],
            row["method"],
            f"{row['steps_per_second']:.0f}",
            f"{row['of_published']:.1f}",
            f"{row['of_plain']:.1f}",
        ]
        for row in found["rows"]
    ]
    return table(["preset", "", "method", "steps per second", "times the published code", "times plain PPO"], rows)


def envs() -> str:
    """Steps per second of the vectorised environment as multiples of Farama's."""
    names = {"1": "1 envs", "16": "16 envs", "256": "256 envs", "1,024": "1024 envs"}
    names["256, door noise"] = "256 envs, door noise"
    rows = []
    for room, found in stored("envs")["rooms"].items():
        ratios = [found[name]["ratio"] for name in names.values()]
        rows.append([room, *(f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}" for ratio in ratios)])
    return table(["room", *names], rows)


def report() -> str:
    """What a report on a study as large as the paper's takes."""
    found = stored("report")
    rows = [
        ["time on two cores", f"{found['seconds']:.0f} s"],
        ["processor time", f"{found['processor_seconds']:.0f} s"],
        ["peak memory", f"{found['memory_mb']:.0f} MB"],
        ["the page", f"{found['page_mb']:.1f} MB"],
    ]
    return table([f"{found['runs']} runs of {found['epochs']} epochs", ""], rows)


def sections() -> str:
    """How many runs of each section of the campaigns are in the results."""
    rows = []
    for name in ("evidence", "sensitivity"):
        file = ROOT / "campaigns" / f"{name}.toml"
        for section in read_campaign_file(file).sections:
            asked = {spec.run_id: spec.seed for spec in section.specs()}
            results = ROOT / "results" / f"{section.name}.parquet"
            done = {run.id for run in load_results(results).finished()} if results.exists() else set()
            seeds = Counter(seed for run_id, seed in asked.items() if run_id in done)
            rows.append([section.name, str(len(asked)), str(seeds.total()), _seeds(seeds)])
    return table(["section", "runs", "done", "seeds"], rows)


def _seeds(runs: Mapping[int, int]) -> str:
    """The seeds that have runs, and where they do not have equally many, how many."""
    if len(set(runs.values())) < 2:
        return ranges(runs) or "–"
    return ", ".join(f"{seed} ({count(number, 'run')})" for seed, number in sorted(runs.items()))


def study() -> str:
    """What each signal comes to in the conditions of the study that have enough seeds of all of them."""
    wanted = ("curiosity", "norm_last", "norm_all", "delta_loss", "gmc")
    columns, seeds, remarks = {}, set(), set()
    for group, members in load_results(ROOT / "results").select(protocol="released").groups().items():
        rows = {row.method: row for row in method_rows(members) if len(row.seeds) >= ENOUGH and row.relative}
        if group.dataset is None or not all(name in rows for name in (*wanted, "uniform")):
            continue
        is_official = not notes_of(members)
        remarks |= set() if is_official else {title(group.dataset)}
        columns[f"{group.title}{'' if is_official else MARK}"] = [_area(rows[name]) for name in wanted]
        seeds |= {len(row.seeds) for row in rows.values()}
    table_rows = [list(row) for row in zip(map(title, wanted), *columns.values(), strict=True)]
    notes = [f"{MARK} {name} is a JPEG-compressed copy, not the official files." for name in sorted(remarks)]
    span = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    intro = (
        "In the paper's study a signal chooses what a classifier learns from. Area under the test-loss curve,\n"
        "relative to uniform sampling (lower is better), with 95% intervals over\n"
        f"{span} seeds; with noise also the share of the last samples from the\n"
        "noisiest group ([more](docs/results.md)):"
    )
    return "\n\n".join((intro, table(["signal", *columns], table_rows), *notes))


def _area(row: MethodRow) -> str:
    """A signal's area, and in the noise the share of the noisiest group."""
    assert row.relative is not None
    text = f"{row.relative.value:.3f} [{row.relative.low:.3f}, {row.relative.high:.3f}]"
    return f"{text}, {row.shares[-1].value:.0%}" if row.group.condition == "noise" else text


def architectures() -> str:
    """The networks of the study as they are made, layer by layer, with their numbers of parameters."""
    rows = []
    for name, shape in (("MNIST", (1, 28, 28)), ("CIFAR-10", (3, 32, 32))):
        split = Split(np.zeros((300, *shape), dtype=np.uint8), np.arange(300, dtype=np.int64) % 10)
        images = Dataset("blank", split, split, tuple("0123456789"), "", "blank")
        for condition in ("noise", "curriculum"):
            trial = Trial(images, condition, "gmc", Protocol.released(), seed=0)
            assert isinstance(trial.actor, Actor)
            if condition == "noise":
                rows.append(_network(f"classifier, {name}", trial.model))
            if name == "MNIST":
                rows.append(_network(f"actor, {condition}", trial.actor.policy))
    for method in ("gmc", "icm"):
        (spec,) = exploration.specs([method], ["door"], [0], ExplorationProtocol.released(), "released")
        ppo = exploration.make(spec, Context())
        assert isinstance(ppo.reward, IntrinsicReward)
        if method == "gmc":
            rows += [_network("policy", ppo.agent.policy), _network("values", ppo.agent.value)]
            rows.append(_network("forward model, GMC", ppo.reward.predictor.scored))
        else:
            names = {"encoder": "ICM, encoder (tanh)", "inverse": "ICM, inverse model", "scored": "ICM, forward model"}
            rows += [_network(names[name], part) for name, part in ppo.reward.predictor.named_children()]
            rows.append(["ICM, all three", "", _parameters(ppo.reward.predictor)])
        ppo.close()
    return table(["network", "layers", "parameters"], rows)


def _network(name: str, module: nn.Module) -> list[str]:
    """A row: the channels of its convolutions, then the widths of its layers."""
    convolutions = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    channels = "-".join(str(each.out_channels) for each in convolutions)
    parts = [f"3x3 convolutions {channels}"] if convolutions else []
    parts.append("-".join(map(str, [linear[0].in_features, *(each.out_features for each in linear)])))
    return [name, ", then ".join(parts), _parameters(module)]


def _parameters(module: nn.Module) -> str:
    return f"{sum(parameter.numel() for parameter in module.parameters()):,}"


def choices(kind: type[Fields], presets: Sequence[str]) -> str:
    """Every field of a protocol under some presets."""
    found = [kind.named(preset).to_dict() for preset in presets]
    rows = [[f"`{name}`", *(_value(each[name]) for each in found)] for name in found[0]]
    return table(["field", *(f"`{preset}`" for preset in presets)], rows)


def _value(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "x".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return "none" if value is None else str(value)


def arena() -> str:
    """The tables of the arena."""
    return arena_tables.markdown(load_results(ROOT / "results" / "arena"))


RL_PRESETS = ("paper", "released", "fast")
PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "check": ("docs/benchmarks.md", check),
    "steady": ("docs/benchmarks.md", steady),
    "kernels": ("docs/benchmarks.md", kernels),
    "sampler": ("docs/howto/pytorch.md", sampler),
    "huggingface": ("docs/howto/transformers.md", huggingface),
    "sb3": ("docs/howto/sb3.md", sb3),
    "bonus": ("docs/howto/sb3.md", partial(bonus, "bonus")),
    "bonus-defaults": ("docs/intrinsic.md", partial(bonus, "bonus")),
    "zoo": ("docs/howto/sb3.md", partial(bonus, "zoo")),
    "controlled": ("docs/study.md", controlled),
    "floors": ("docs/mathematics.md", floors),
    "architectures": ("docs/study.md", architectures),
    "choices": ("docs/study.md", partial(choices, Protocol, ("paper", "released"))),
    "exploration-choices": (
        "docs/exploration.md",
        partial(choices, ExplorationProtocol, ("paper", "released", "fast")),
    ),
    "doorkey": ("docs/exploration.md", doorkey),
    "envs": ("docs/environments.md", envs),
    "report": ("docs/report.md", report),
    "sections": ("docs/results.md", sections),
    "arena": ("docs/arena.md", arena),
    "study": ("README.md", study),
}


def main() -> int:
    """Write the pages, or say which are not up to date."""
    parser = argparse.ArgumentParser(description="puts stored measurements into the docs")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    old = []
    for name, (path, say) in PAGES.items():
        page = ROOT / path
        text = page.read_text("utf-8")
        if (new := quoted(text, name, say())) != text:
            old.append(path)
            if not options.check:
                page.write_text(new, "utf-8")
    verb = "not up to date" if options.check else "written"
    print(f"{verb}: {', '.join(old)}" if old else "all pages are up to date")
    return 1 if options.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
