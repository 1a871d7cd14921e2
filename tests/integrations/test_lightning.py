"""The callback in a real Lightning Trainer."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning")

from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import CombinedLoader

import headway
from headway.errors import IntegrationError, SignalError
from headway.integrations.lightning import SourceCallback
from headway.selection import MultiplicativeWeights, Sources, SourceSampler, Tagged
from tests.integrations.noisy import BATCH, HIGHEST, STEPS, perceptron, points
from tests.models import mlp
from tests.ranks import free_port, leaving_together, run_ranks

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.rank_zero.LightningDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),  # advice on workers and logging
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
]

AT_ONCE = MultiplicativeWeights(strength=40.0, rate=1.0)


class Module(LightningModule):
    """A perceptron that returns its losses, and remembers what it was trained on."""

    def __init__(self, lr: float = 0.05, loss: str = "none", net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = mlp() if net is None else net
        self._loss, self._lr = loss, lr
        self.seen: list[int] = []

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        x, y, source = batch
        self.seen += source.tolist()
        losses = F.cross_entropy(self.net(x), y, reduction="none")
        if self._loss == "none":
            return {"losses": losses, "source": source}
        loss = losses.mean() if self._loss == "mean" else losses.mean() + 1.0
        return {"loss": loss, "losses": losses, "source": source}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self._lr, momentum=0.9)


class Steady(Module):
    """The same with what learns noisy points, and Adam."""

    def __init__(self) -> None:
        super().__init__(net=perceptron())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 3e-3)


class Plain(Module):
    """The same without headway: a scalar loss."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx)["losses"].mean()


def data(samples: int = 96) -> tuple[Tagged, Sources]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 6, generator=generator)
    y = torch.randint(4, (samples,), generator=generator)
    sources = Sources({"a": range(samples // 2), "b": range(samples // 2, samples)})
    return Tagged(TensorDataset(x, y), sources), sources


def loader(sampler: SourceSampler | None, workers: int = 0, prefetch: int | None = None) -> DataLoader:
    tagged, _ = data()
    return DataLoader(tagged, 8, sampler=sampler, num_workers=workers, prefetch_factor=prefetch)


def trainer(folder: Path, *callbacks: Any, **options: Any) -> Trainer:
    seed_everything(0, verbose=False)
    settings = {
        "accelerator": "cpu", "max_epochs": 2, "logger": False, "enable_progress_bar": False,
        "enable_model_summary": False, "enable_checkpointing": False, "default_root_dir": folder,
        "use_distributed_sampler": False, "callbacks": list(callbacks),
    }  # fmt: skip
    return Trainer(**{**settings, **options})


def weights(module: LightningModule) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.net.parameters()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate_grad_batches": 5},  # two of an epoch's 12 batches are left over
        {"gradient_clip_val": 0.1},
        {"precision": "bf16-mixed"},
    ],
    ids=str,
)
def test_training_is_that_of_lightning_alone(tmp_path: Path, options: dict) -> None:
    plain, metered = Plain(), Module()
    trainer(tmp_path, **options).fit(plain, loader(None))
    callback = SourceCallback([headway.GMC(beta=0.9), headway.NormAll()])
    trainer(tmp_path, callback, **options).fit(metered, loader(None))
    tolerance = {"rtol": 2e-2, "atol": 2e-3} if "precision" in options else {"rtol": 1e-5, "atol": 1e-6}
    for have, want in zip(weights(metered), weights(plain), strict=True):
        torch.testing.assert_close(have, want, **tolerance)
    assert set(callback.scores) == {"gmc", "norm_all"}
    assert callback.meter.moments().updates == 24


def test_scores_are_those_of_a_meter_in_a_plain_loop(tmp_path: Path) -> None:
    found: list[Tensor] = []

    class Listening(SourceCallback):
        def on_train_batch_end(self, *args: Any) -> None:
            found.append(self.scores["gmc"])

    trainer(tmp_path, Listening(headway.GMC(beta=0.9)), max_epochs=1).fit(Module(), loader(None))
    model = mlp()
    meter = headway.Meter(model, headway.GMC(beta=0.9))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for batch, have in zip(loader(None), found, strict=True):
        scores = meter.backward(F.cross_entropy(model(batch[0]), batch[1], reduction="none"))
        torch.testing.assert_close(have, scores, rtol=1e-4, atol=1e-6)
        optimizer.step()
        optimizer.zero_grad()


def test_a_source_whose_score_rises_is_drawn_more(tmp_path: Path) -> None:
    """The losses of source b are multiplied by 100, so that it scores more from the second batch on."""

    class Loud(Module):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
            outputs = super().training_step(batch, batch_idx)
            return {**outputs, "losses": outputs["losses"] * torch.where(outputs["source"] == 1, 100.0, 1.0)}

    sampler = SourceSampler(data()[1], AT_ONCE)
    module = Loud(lr=1e-6)
    callback = SourceCallback([headway.GMC(), headway.Curiosity()], sampler=sampler, drive="curiosity")
    trainer(tmp_path, callback, max_epochs=1).fit(module, loader(sampler))
    assert 0 < sum(module.seen[:8]) < 8
    assert set(module.seen[8:]) == {1}
    assert sampler.weights["b"] > 0.99


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stop", [5, 12, 17])
def test_saved_and_resumed_equals_uninterrupted(tmp_path: Path, stop: int, workers: int) -> None:
    """Stopped within the first epoch, at its end, and within the second."""

    def parts() -> tuple[Module, SourceCallback, SourceSampler]:
        sampler = SourceSampler(data()[1], seed=3)
        monitor = headway.SourceMonitor(["a", "b"], every=3)
        signals = [headway.GMC(beta=0.9), headway.NormAll()]
        return Module(), SourceCallback(signals, sampler=sampler, monitor=monitor), sampler

    module, callback, sampler = parts()
    trainer(tmp_path, callback).fit(module, loader(sampler, workers))

    first, saving, drawn = parts()
    keep = ModelCheckpoint(tmp_path, "stopped", every_n_train_steps=stop, save_top_k=1)
    trainer(tmp_path, saving, keep, enable_checkpointing=True, max_steps=stop, max_epochs=-1).fit(
        first, loader(drawn, workers)
    )
    second, resumed, again = parts()
    again.seed = 99  # the checkpoint knows better
    checkpoint = tmp_path / "stopped.ckpt"
    trainer(tmp_path, resumed).fit(second, loader(again, workers), ckpt_path=checkpoint, weights_only=True)

    assert first.seen[: stop * 8] + second.seen == module.seen
    for have, want in zip(weights(second), weights(module), strict=True):
        assert torch.equal(have, want)
    assert resumed._feedback.monitor.rows == callback._feedback.monitor.rows
    assert again.weights == sampler.weights
    assert again.counts == sampler.counts
    for name, m in callback.meter.moments().m.items():
        assert torch.equal(resumed.meter.moments().m[name], m)


@pytest.mark.parametrize(
    ("fits", "workers", "prefetch"), [(1, 0, None), (1, 1, None), (0, 1, 12), (1, 1, 12)], ids=str
)  # fmt: skip
def test_a_second_fit_resumes_too(tmp_path: Path, fits: int, workers: int, prefetch: int | None) -> None:
    """Its epochs have the numbers of the first one's; by the time that they are named, all 12 batches may be drawn."""

    def parts() -> tuple[Module, SourceCallback, DataLoader]:
        sampler = SourceSampler(data()[1], seed=3)
        return Module(), SourceCallback(headway.GMC(beta=0.9), sampler=sampler), loader(sampler, workers, prefetch)

    whole, callback, draws = parts()
    for _ in range(fits):
        trainer(tmp_path, callback, max_steps=19).fit(whole, draws)  # into the second epoch
        whole.seen.clear()
    keep = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=5, save_top_k=-1)
    trainer(tmp_path, callback, keep, enable_checkpointing=True).fit(whole, draws)
    assert len(whole.seen) == 2 * 96
    for stop in (5, 15):
        resumed, again, rest = parts()
        trainer(tmp_path, again).fit(resumed, rest, ckpt_path=tmp_path / f"step={stop}.ckpt", weights_only=True)
        assert resumed.seen == whole.seen[stop * 8 :]
        for have, want in zip(weights(resumed), weights(whole), strict=True):
            assert torch.equal(have, want)
        assert again.meter.moments().updates == callback.meter.moments().updates


def test_a_callback_that_was_fitted_before_resumes(tmp_path: Path) -> None:
    def parts() -> tuple[SourceCallback, DataLoader]:
        sampler = SourceSampler(data()[1], seed=3)
        return SourceCallback(headway.GMC(), sampler=sampler), loader(sampler)

    whole, (callback, draws) = Module(), parts()
    keep = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=5, save_top_k=-1)
    trainer(tmp_path, callback, keep, enable_checkpointing=True).fit(whole, draws)
    resumed, (again, rest) = Module(), parts()
    trainer(tmp_path, again, max_epochs=1).fit(Module(), rest)
    trainer(tmp_path, again).fit(resumed, rest, ckpt_path=tmp_path / "step=5.ckpt", weights_only=True)
    assert resumed.seen == whole.seen[5 * 8 :]
    assert again.meter.moments().updates == callback.meter.moments().updates


def test_the_module_is_left_as_it_was(tmp_path: Path) -> None:
    module = Module()
    hooks = copy.deepcopy([len(part._forward_hooks) for part in module.modules()])
    trainer(tmp_path, SourceCallback(), max_epochs=1).fit(module, loader(None))
    assert "training_step" not in vars(module)
    assert [len(part._forward_hooks) for part in module.modules()] == hooks


def test_the_module_is_left_as_it_was_after_an_error(tmp_path: Path) -> None:
    class Failing(Module):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
            if batch_idx == 2:
                raise RuntimeError("out of memory")
            return super().training_step(batch, batch_idx)

    module, callback = Failing(), SourceCallback()
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer(tmp_path, callback, max_epochs=1).fit(module, loader(None))
    assert "training_step" not in vars(module)
    assert not any(part._forward_hooks for part in module.modules())


class Skipping(Module):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        return None if batch_idx % 3 == 1 else super().training_step(batch, batch_idx)


class Filtering(Module):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        return super().training_step([part[:5] for part in batch], batch_idx)


class TwoViews(Module):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        return super().training_step([torch.cat([part, part]) for part in batch], batch_idx)


@pytest.mark.parametrize("make", [Skipping, Filtering, TwoViews])
def test_a_checkpoint_counts_what_was_drawn_and_not_the_losses(tmp_path: Path, make: Any) -> None:
    positions: list[int] = []

    class Watching(Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            positions.append(callback.state_dict()["sampler"]["position"])

    sampler = SourceSampler(data()[1], num_samples=92)
    callback = SourceCallback(sampler=sampler)
    trainer(tmp_path, Watching(), callback, max_epochs=2).fit(make(), loader(sampler, workers=1))
    assert positions == [*range(8, 89, 8), 92] * 2


def test_shares_are_logged_and_batches_may_be_skipped(tmp_path: Path) -> None:
    sampler = SourceSampler(data()[1])
    running = trainer(tmp_path, SourceCallback(sampler=sampler), max_epochs=1)
    running.fit(Skipping(), loader(sampler))
    assert running.logged_metrics["share/a"].item() == pytest.approx(sampler.weights["a"])


class Manual(Module):
    automatic_optimization = False


class Scalar(Module):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx)["losses"].mean()


class Anonymous(Module):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        return {"losses": super().training_step(batch, batch_idx)["losses"]}


class Nowhere(Anonymous):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        return {**super().training_step(batch, batch_idx), "source": None}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Manual, r"expected automatic optimisation"),
        (Scalar, "a dict with 'losses', one per sample, got Tensor"),
        (Anonymous, "the source of each sample .* got none"),
        (Nowhere, "the source of each sample .* got none"),
        (functools.partial(Module, loss="more"), "or their mean .*, got"),
    ],
)
def test_a_module_that_does_not_fit_is_refused(tmp_path: Path, make: Any, message: str) -> None:
    sampler = SourceSampler(data()[1])
    with pytest.raises(IntegrationError, match=message):
        trainer(tmp_path, SourceCallback(sampler=sampler), max_epochs=1).fit(make(), loader(sampler))


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(IntegrationError, match=r"one of the signals \['gmc'\], got 'loss'"):
        SourceCallback(drive="loss")
    with pytest.raises(IntegrationError, match="accumulate=1, got 4"):
        SourceCallback(meter={"accumulate": 4})
    sampler = SourceSampler(data()[1])
    with pytest.raises(IntegrationError, match="expected signals, got a SourceSampler; pass it as sampler="):
        SourceCallback(sampler)
    with pytest.raises(SignalError, match=r"such as headway.GMC\(\), got 'gmc'"):
        SourceCallback("gmc")
    with pytest.raises(IntegrationError, match=r"monitor: .*got list"):
        SourceCallback(monitor=["a", "b"])
    with pytest.raises(IntegrationError, match=r"sampler's sources \['a', 'b'\], .*, got one of \['b', 'a'\]"):
        SourceCallback(sampler=sampler, monitor=headway.SourceMonitor(["b", "a"]))
    with pytest.raises(IntegrationError, match="use_distributed_sampler=False"):
        trainer(tmp_path, SourceCallback(sampler=SourceSampler(data()[1]))).fit(Module(loss="mean"), loader(None))


@leaving_together
def _fit(rank: int, folder: str, port: int, ranks: int) -> None:
    """One of two processes that Lightning was told of by its environment variables."""
    import os

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NODE_RANK="0", LOCAL_RANK=str(rank))
    tagged, sources = data()
    sampler = SourceSampler(sources)  # made before the processes know each other, as in a script
    module, callback = Module(), SourceCallback(headway.GMC(beta=0.9), sampler=sampler)
    strategy = "ddp" if ranks > 1 else "auto"
    running = trainer(Path(folder), callback, max_epochs=1, devices=ranks, strategy=strategy)
    running.fit(module, DataLoader(tagged, 8 // ranks, sampler=sampler))
    torch.save((weights(module), module.seen, sampler.weights), Path(folder) / f"{ranks}-{rank}.pt")


@leaving_together
def _fit_and_resume(rank: int, folder: str, port: int) -> None:
    """One of two processes; the last of the monitor's rows is open when the checkpoint is saved."""
    import os

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NODE_RANK="0", LOCAL_RANK=str(rank))

    def fit(*callbacks: Any, ckpt_path: Path | None = None) -> tuple[list[int], list[Any]]:
        tagged, sources = data()
        sampler, monitor = SourceSampler(sources, seed=3), headway.SourceMonitor(["a", "b"], every=4)
        signals = [headway.GMC(beta=0.9), headway.NormAll()]
        module, callback = Module(), SourceCallback(signals, sampler=sampler, monitor=monitor)
        options = {"max_epochs": 1, "devices": 2, "strategy": "ddp", "enable_checkpointing": bool(callbacks)}
        running = trainer(Path(folder), callback, *callbacks, **options)
        running.fit(module, DataLoader(tagged, 4, sampler=sampler), ckpt_path=ckpt_path, weights_only=bool(ckpt_path))
        return module.seen, monitor.rows

    seen, rows = fit(ModelCheckpoint(folder, "{step}", every_n_train_steps=6, save_top_k=-1))
    rest, again = fit(ckpt_path=Path(folder) / "step=6.ckpt")
    torch.save((seen[6 * 4 :], rows, rest, again), Path(folder) / f"{rank}.pt")


@pytest.mark.slow
def test_two_processes_resume_with_the_rows_of_both(tmp_path: Path) -> None:
    run_ranks(_fit_and_resume, str(tmp_path), free_port())
    for rank in range(2):
        seen, rows, rest, again = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert rest == seen
        assert again == rows
        assert sum(row["samples"] for row in rows) == 96


@pytest.mark.slow
def test_two_processes_draw_what_one_draws(tmp_path: Path) -> None:
    for ranks in (2, 1):
        run_ranks(_fit, str(tmp_path), free_port(), ranks, world=ranks)
    single = torch.load(tmp_path / "1-0.pt", weights_only=True)
    pair = [torch.load(tmp_path / f"2-{rank}.pt", weights_only=True) for rank in range(2)]
    joined = [source for both in zip(pair[0][1], pair[1][1], strict=True) for source in both]
    assert joined == single[1]
    for own in pair:
        assert own[2] == pytest.approx(single[2])
        for have, want in zip(own[0], single[0], strict=True):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-6)


# Streams


def test_a_stream_in_place_of_the_sampler_moves_away_from_noise(tmp_path: Path) -> None:
    stream = points()
    run = trainer(tmp_path, SourceCallback(sampler=stream), max_epochs=-1, max_steps=STEPS)
    run.fit(Steady(), DataLoader(stream, BATCH, num_workers=2))
    assert stream.weights["noise"] < HIGHEST
    assert run.callback_metrics["share/noise"] == pytest.approx(stream.weights["noise"])


def test_signals_by_source_have_the_source_as_their_group(tmp_path: Path) -> None:
    stream = points()
    signals = [headway.DeltaLoss(window=20), headway.Learnability()]
    callback = SourceCallback(signals, sampler=stream.mixture)
    trainer(tmp_path, callback, max_epochs=-1, max_steps=30).fit(Steady(), DataLoader(stream, BATCH))
    assert bool(callback.scores["delta_loss"].any())
    assert callback.scores["learnability"].isfinite().all()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # pytest.warns repeats Lightning's own, as if from here
def test_a_window_that_the_run_cannot_fill_is_said(tmp_path: Path) -> None:
    stream = points()
    callback = SourceCallback(headway.DeltaLoss(window=1000), sampler=stream)
    with pytest.warns(UserWarning, match="4000 samples.*got 64"):
        trainer(tmp_path, callback, max_epochs=-1, max_steps=2).fit(Steady(), DataLoader(stream, BATCH))


def test_a_combined_loader_is_named_where_the_sampler_is_in_none_of_it(tmp_path: Path) -> None:
    _, sources = data()
    combined = CombinedLoader({"a": loader(None), "b": loader(None)}, "max_size_cycle")
    with pytest.raises(IntegrationError, match="CombinedLoader of 2"):
        trainer(tmp_path, SourceCallback(sampler=SourceSampler(sources))).fit(Module(), combined)
