"""The mixin in a real Hugging Face Trainer, on a small GPT-2 that is built from a config."""

from __future__ import annotations

import copy
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers import (
    DataCollatorWithFlattening,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)
from transformers.pytorch_utils import Conv1D
from transformers.trainer_utils import SaveStrategy

import headway
from headway.errors import IntegrationError
from headway.grads.registry import rule_for
from headway.integrations.transformers import SourceTrainer, SourceTrainerMixin
from headway.selection import MultiplicativeWeights, Sources, SourceSampler, SourceStream, Tagged
from tests.integrations.noisy import BATCH, HIGHEST, STEPS, WORDS, texts
from tests.ranks import free_port, leaving_together

VOCABULARY, LENGTH, SAMPLES = 16, 10, 48
AT_ONCE = MultiplicativeWeights(strength=40.0, rate=1.0)


def model(**changes: Any) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    settings = {
        "vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 8, "n_layer": 2, "n_head": 2,
        "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    return GPT2LMHeadModel(GPT2Config(**{**settings, **changes}))


class Texts(Dataset):
    """Random tokens; every text has another length, with padding that has no loss."""

    def __init__(self, pad: bool = True) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=generator)
        self.lengths = torch.randint(3, LENGTH + 1, (SAMPLES,), generator=generator)
        self._pad = pad

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        labels = self.tokens[index].clone()
        if self._pad:
            labels[self.lengths[index] :] = -100
        return {"input_ids": self.tokens[index], "labels": labels}


def sources() -> Sources:
    return Sources({"a": range(SAMPLES // 2), "b": range(SAMPLES // 2, SAMPLES)})


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    settings = {
        "output_dir": str(folder), "per_device_train_batch_size": 4, "num_train_epochs": 2, "learning_rate": 1e-2,
        "report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "disable_tqdm": True,
        "dataloader_pin_memory": False, "max_grad_norm": 1.0,
    }  # fmt: skip
    return TrainingArguments(**{**settings, **changes})


class Recording(SourceTrainer):
    """Remembers the sources of what it was trained on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: list[int] = []

    def training_step(self, model: nn.Module, inputs: Any, *args: Any) -> Tensor:
        self.seen += inputs["source"].tolist()
        return super().training_step(model, inputs, *args)


def weights(of: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in of.named_parameters()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gradient_accumulation_steps": 5},
        {"bf16": True, "optim": "sgd"},  # Adam would blow the rounding of vanishing gradients up
        {"average_tokens_across_devices": False},
    ],
    ids=str,
)
def test_training_is_that_of_the_trainer_alone(tmp_path: Path, changes: dict) -> None:
    """Texts of different lengths, accumulation with a rest, dropout, a tied head, clipping: the weights agree."""
    plain, metered = model(), model()
    Trainer(plain, arguments(tmp_path, **changes), train_dataset=Texts()).train()
    data = Tagged(Texts(), sources())
    trainer = SourceTrainer(metered, arguments(tmp_path, **changes), train_dataset=data)
    trainer.train()
    wanted = weights(plain)
    tolerance = {"rtol": 1e-2, "atol": 1e-3} if changes.get("bf16") else {"rtol": 1e-3, "atol": 1e-4}
    for name, have in weights(metered).items():
        torch.testing.assert_close(have, wanted[name], **tolerance)
    assert trainer.meter.moments().updates == 24


def test_scores_are_those_of_single_samples() -> None:
    """GPT-2's own Linear has a rule; the whole model agrees with autograd on one sample at a time."""
    assert rule_for(Conv1D(3, 2)) is not None
    language = model(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).double()
    meter = headway.Meter(language, headway.GMC(beta=0.9), verify=True)
    tokens = Texts().tokens[:6]
    for _ in range(2):
        logits = language(input_ids=tokens).logits
        losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
        meter.backward(losses)
        language.zero_grad()
    assert meter.verification.largest_difference < 1e-9


def test_conv1d_on_vectors_too() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(Conv1D(4, 3), nn.Tanh(), Conv1D(2, 4)).double()
    signals = [headway.GMC(), headway.NormAll(norm="l2-squared"), headway.DotProduct()]
    meter = headway.Meter(net, signals, verify=True)
    for _ in range(2):
        meter.backward(net(torch.randn(5, 3, dtype=torch.float64)).square().sum(1))
    assert meter.verification.largest_difference < 1e-9


def test_losses_are_shares_of_the_trainers_loss(tmp_path: Path) -> None:
    trainer = SourceTrainer(model(), arguments(tmp_path), train_dataset=Texts())
    batch = {key: torch.stack([Texts()[i][key] for i in range(4)]) for key in ("input_ids", "labels")}
    with torch.no_grad():
        outputs = trainer.model.eval()(**batch)
        sums, items = trainer.sample_losses(outputs, batch["labels"])
    torch.testing.assert_close(sums.sum() / items.sum(), outputs.loss)
    assert items.tolist() == (Texts().lengths[:4] - 1).tolist()


class OwnGPT2(GPT2LMHeadModel):
    """A model of one's own, whose name the library does not know."""


class Adapted(nn.Module):
    """A model within another, as PEFT has it."""

    def __init__(self, inner: GPT2LMHeadModel) -> None:
        super().__init__()
        self.inner = inner

    def get_base_model(self) -> GPT2LMHeadModel:
        return self.inner

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
        return self.inner(input_ids=input_ids, labels=labels)


class Unknown(nn.Module):
    """A language model of which nothing tells that it shifts its labels, but its loss."""

    def __init__(self, inner: GPT2LMHeadModel) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
        return self.inner(input_ids=input_ids, labels=labels)


class Shifting(SourceTrainer):
    shift_labels = True


@pytest.mark.parametrize(
    ("make", "trainer"),
    [(lambda: OwnGPT2(model().config), SourceTrainer), (lambda: Adapted(model()), SourceTrainer),
     (lambda: Unknown(model()), Shifting)],
    ids=["subclass", "wrapper", "told"],
)  # fmt: skip
def test_labels_are_shifted_where_the_model_shifts_them(tmp_path: Path, make: Any, trainer: Any) -> None:
    torch.manual_seed(0)
    plain = make()
    metered = copy.deepcopy(plain)
    options = arguments(tmp_path, max_steps=4, optim="sgd")
    Trainer(plain, options, train_dataset=Texts()).train()
    trainer(metered, options, train_dataset=Texts()).train()
    for name, have in weights(metered).items():
        torch.testing.assert_close(have, weights(plain)[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shifts", [True, False])
def test_a_loss_that_is_not_the_models_own_is_refused(tmp_path: Path, shifts: bool) -> None:
    class Copying(GPT2LMHeadModel):
        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
            logits = super().forward(input_ids=input_ids).logits
            return {"logits": logits, "loss": None if labels is None else F.cross_entropy(logits.mT, labels)}

    unfit = Unknown(model()) if shifts else Copying(model().config)
    with pytest.raises(IntegrationError, match=rf"expected losses with the mean .* set shift_labels = {shifts}"):
        SourceTrainer(unfit, arguments(tmp_path), train_dataset=Texts()).train()


def test_the_model_is_left_as_it_was_after_an_error(tmp_path: Path) -> None:
    class Failing(SourceTrainer):
        def training_step(self, *args: Any) -> Tensor:
            loss = super().training_step(*args)
            if self.state.global_step == 2:
                raise RuntimeError("out of memory")
            return loss

    language = model()
    with pytest.raises(RuntimeError, match="out of memory"):
        Failing(language, arguments(tmp_path), train_dataset=Texts()).train()
    assert not any(part._forward_hooks for part in language.modules())


class Loud(SourceTrainer):
    """Multiplies the losses of the second source by 100."""

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        self._current = inputs["source"]
        return super().compute_loss(model, inputs, *args, **kwargs)

    def sample_losses(self, outputs: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
        sums, items = super().sample_losses(outputs, labels)
        return sums * torch.where(self._current == 1, 100.0, 1.0), items


class LoudRecording(Loud, Recording):
    pass


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_source_whose_score_rises_is_drawn_more_within_the_lag(tmp_path: Path, accumulation: int) -> None:
    sampler = SourceSampler(sources(), AT_ONCE)
    options = arguments(tmp_path, num_train_epochs=1, learning_rate=1e-9, gradient_accumulation_steps=accumulation)
    trainer = LoudRecording(
        model(), options, train_dataset=Tagged(Texts(), sampler.sources), sampler=sampler,
        signals=[headway.Curiosity(), headway.GMC()],
    )  # fmt: skip
    trainer.train()
    # accelerate looks one batch ahead, and the Trainer fetches all batches of an accumulation at once
    late = (1 + 1 + accumulation - 1) * 4
    assert 0 < sum(trainer.seen[:late]) < late
    assert set(trainer.seen[late:]) == {1}


@pytest.mark.parametrize(
    ("stop", "changes"),
    [
        (5, {}),
        (12, {}),
        (17, {}),
        (2, {"gradient_accumulation_steps": 5}),
        (7, {"dataloader_num_workers": 1, "dataloader_prefetch_factor": 2}),
        (9, {"dataloader_drop_last": True, "per_device_train_batch_size": 5}),  # three are left over by each epoch
        (11, {"dataloader_drop_last": True, "per_device_train_batch_size": 5}),
    ],
    ids=str,
)
def test_saved_and_resumed_equals_uninterrupted(tmp_path: Path, stop: int, changes: dict) -> None:
    def make(folder: str, **more: Any) -> Recording:
        sampler = SourceSampler(sources(), seed=3)
        return Recording(
            model(), arguments(tmp_path / folder, **changes, **more), train_dataset=Tagged(Texts(), sampler.sources),
            sampler=sampler, monitor=headway.SourceMonitor(["a", "b"], every=3),
            signals=[headway.GMC(beta=0.9), headway.NormAll()],
        )  # fmt: skip

    whole = make("whole")
    whole.train()
    first = make("parts", save_strategy="steps", save_steps=stop)
    first.train()
    folder = tmp_path / "parts" / f"checkpoint-{stop}"
    assert (folder / "headway.pt").exists()
    second = make("parts")
    second._feedback.sampler.seed = 99  # the checkpoint knows better
    second.train(resume_from_checkpoint=str(folder))
    batch = changes.get("per_device_train_batch_size", 4) * changes.get("gradient_accumulation_steps", 1)
    assert first.seen[: stop * batch] + second.seen == whole.seen
    for name, have in weights(second.model).items():
        assert torch.equal(have, weights(whole.model)[name]), name
    assert second._feedback.monitor.rows == whole._feedback.monitor.rows
    assert second._feedback.sampler.weights == whole._feedback.sampler.weights
    assert second._feedback.sampler.counts == whole._feedback.sampler.counts


class Telling(SourceTrainer):
    """Remembers the texts that it was trained on, and runs out of memory once with batches of eight."""

    def __init__(self, *args: Any, fail_at: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.texts: list[list[int]] = []
        self._fail_at = fail_at

    def training_step(self, model: nn.Module, inputs: Any, *args: Any) -> Tensor:
        if self.state.global_step == self._fail_at and len(inputs["input_ids"]) == 8:
            self.texts.clear()  # the Trainer begins anew
            raise RuntimeError("CUDA out of memory.")
        self.texts += inputs["input_ids"].tolist()
        return super().training_step(model, inputs, *args)


def telling(folder: Path, fail_at: int | None = None, **changes: Any) -> Telling:
    sampler = SourceSampler(sources(), seed=3)
    return Telling(
        model(), arguments(folder, **changes), train_dataset=Tagged(Texts(), sampler.sources), sampler=sampler,
        signals=headway.GMC(beta=0.9), fail_at=fail_at,
    )  # fmt: skip


def assert_it_resumes(whole: Telling, resumed: Telling, step: int, trained: int) -> None:
    """What was saved at a step says where the epoch is after so many samples, and goes on with what came next."""
    folder = Path(whole.args.output_dir) / f"checkpoint-{step}"
    assert torch.load(folder / "headway.pt", weights_only=True)["sampler"]["position"] == trained % SAMPLES
    resumed.train(folder)
    assert resumed.texts == whole.texts[trained:]
    for name, have in weights(resumed.model).items():
        assert torch.equal(have, weights(whole.model)[name]), name
    assert resumed.meter.moments().updates == whole.meter.moments().updates


@pytest.mark.parametrize("step", [5, 17])
def test_a_second_training_resumes_too(tmp_path: Path, step: int) -> None:
    """Its epochs have the numbers of the first one's."""
    whole = telling(tmp_path / "whole")
    whole.train()
    whole.texts.clear()
    whole.args.save_strategy, whole.args.save_steps = SaveStrategy.STEPS, step
    whole.train()
    assert_it_resumes(whole, telling(tmp_path / "resumed"), step, 4 * step)


def test_a_training_that_began_anew_with_a_smaller_batch_resumes(tmp_path: Path) -> None:
    changes = {"auto_find_batch_size": True, "per_device_train_batch_size": 8}
    whole = telling(tmp_path / "whole", fail_at=3, save_strategy="steps", save_steps=2, **changes)
    whole.train()
    assert len(whole.texts) == 2 * SAMPLES
    assert_it_resumes(whole, telling(tmp_path / "resumed", **changes), 2, 14)


def test_a_trainer_that_was_trained_before_resumes(tmp_path: Path) -> None:
    whole = telling(tmp_path / "whole", save_strategy="steps", save_steps=5)
    whole.train()
    resumed = telling(tmp_path / "resumed")
    resumed.train()
    resumed.texts.clear()
    assert_it_resumes(whole, resumed, 5, 20)


@pytest.mark.parametrize("fail_at", [None, 4])
def test_another_number_of_samples_per_step_is_refused(tmp_path: Path, fail_at: int | None) -> None:
    """The Trainer would skip other samples than those that it was trained on."""
    changes = {"per_device_train_batch_size": 8, "save_strategy": "steps", "save_steps": 2}
    telling(tmp_path, **changes).train()
    changes |= {"per_device_train_batch_size": 6} if fail_at is None else {"auto_find_batch_size": True}
    with pytest.raises(IntegrationError, match=rf"expected 8 samples .*, got {6 if fail_at is None else 7};"):
        telling(tmp_path, fail_at, **changes).train(str(tmp_path / "checkpoint-2"))
    same = telling(tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    same.train(str(tmp_path / "checkpoint-2"))
    assert len(same.texts) == 2 * SAMPLES - 16


def test_the_last_checkpoint_is_found_and_one_without_states_refused(tmp_path: Path) -> None:
    settings = {"save_strategy": "steps", "save_steps": 6, "max_steps": 6}
    data = Tagged(Texts(), sources())
    SourceTrainer(model(), arguments(tmp_path, **settings), train_dataset=data).train()
    again = SourceTrainer(model(), arguments(tmp_path, **{**settings, "max_steps": 8}), train_dataset=data)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 8
    assert again.meter.moments().updates == 8
    (tmp_path / "checkpoint-6" / "headway.pt").unlink()
    with pytest.raises(IntegrationError, match=r"headway.pt, got a checkpoint without it"):
        SourceTrainer(model(), arguments(tmp_path), train_dataset=data).train(str(tmp_path / "checkpoint-6"))


def test_evaluation_is_the_trainers_own_and_does_not_disturb(tmp_path: Path) -> None:
    data = Tagged(Texts(), sources())
    changes = {"eval_strategy": "steps", "eval_steps": 5, "logging_strategy": "steps", "logging_steps": 5}

    def make(**more: Any) -> SourceTrainer:
        calm = model(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # evaluation draws random numbers of its own
        options = arguments(tmp_path, **more)
        return SourceTrainer(calm, options, train_dataset=data, eval_dataset=data, sampler=SourceSampler(sources()))

    with_eval, without = make(**changes), make()
    with_eval.train()
    without.train()
    for name, have in weights(with_eval.model).items():
        assert torch.equal(have, weights(without.model)[name])
    plain = Trainer(with_eval.model, arguments(tmp_path), eval_dataset=Texts())
    assert with_eval.evaluate()["eval_loss"] == pytest.approx(plain.evaluate()["eval_loss"], rel=1e-5)


def test_shares_are_in_the_logs(tmp_path: Path) -> None:
    sampler = SourceSampler(sources())
    changes = {"logging_strategy": "steps", "logging_steps": 5, "max_steps": 10}
    data = Tagged(Texts(), sampler.sources)
    trainer = SourceTrainer(model(), arguments(tmp_path, **changes), train_dataset=data, sampler=sampler)
    trainer.train()
    assert trainer.state.log_history[0]["share/a"] + trainer.state.log_history[0]["share/b"] == pytest.approx(1)


class Classifier(nn.Module):
    """A model of another kind: one label per sample."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(6, 4)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.net(x)
        return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Points(Dataset):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.randn(6, generator=torch.Generator().manual_seed(index)), "labels": index % 4}


def test_one_label_per_sample(tmp_path: Path) -> None:
    plain, metered = Classifier(), Classifier()
    Trainer(plain, arguments(tmp_path), train_dataset=Points()).train()
    trainer = SourceTrainer(metered, arguments(tmp_path), train_dataset=Points())
    trainer.train()
    torch.testing.assert_close(metered.net.weight, plain.net.weight)
    assert trainer.scores["gmc"].shape == (4,)


class Unlabelled(Texts):
    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.tokens[index]}


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    class Smooth(SourceTrainerMixin, Trainer):
        pass

    with pytest.raises(IntegrationError, match="label smoothing"):
        Smooth(model(), arguments(tmp_path, label_smoothing_factor=0.1), train_dataset=Texts())
    with pytest.raises(IntegrationError, match=r"sampler: expected a SourceSampler.*got dict"):
        SourceTrainer(model(), arguments(tmp_path), train_dataset=Texts(), sampler={"a": range(3)})
    sampler = SourceSampler(sources())
    with pytest.raises(IntegrationError, match="the source of each sample"):
        SourceTrainer(model(), arguments(tmp_path), train_dataset=Texts(), sampler=sampler).train()
    with pytest.raises(IntegrationError, match=r"got \['input_ids'\]"):
        SourceTrainer(model(), arguments(tmp_path), train_dataset=Unlabelled()).train()
    trainer = SourceTrainer(model(), arguments(tmp_path), train_dataset=Texts())
    with pytest.raises(IntegrationError, match=r"override sample_losses"):
        trainer.sample_losses((torch.zeros(2, 3),), torch.zeros(2))
    kept = arguments(tmp_path, save_strategy="steps", save_steps=2, max_steps=2)
    tagged = Tagged(Texts(), sampler.sources)
    SourceTrainer(model(), kept, train_dataset=tagged, sampler=SourceSampler(sources())).train()
    skipping = arguments(tmp_path, ignore_data_skip=True)
    other = SourceTrainer(model(), skipping, train_dataset=tagged, sampler=SourceSampler(sources()))
    with pytest.raises(IntegrationError, match="ignore_data_skip=False"):
        other.train(str(tmp_path / "checkpoint-2"))


class Stream(IterableDataset):
    """Texts and their sources one after another: nothing can be drawn from it."""

    def __iter__(self) -> Any:
        data = Tagged(Texts(), sources())
        return (data[index] for index in range(SAMPLES))


def test_a_sampler_that_nothing_is_drawn_from_is_refused(tmp_path: Path) -> None:
    class Shuffled(SourceTrainer):
        def get_train_dataloader(self) -> DataLoader:
            return DataLoader(Tagged(Texts(), sources()), 4, shuffle=True)

    options = arguments(tmp_path, max_steps=2)
    sampler = SourceSampler(sources())
    with pytest.raises(IntegrationError, match=r"draws from the sampler, got one of Stream .*SourceStream"):
        SourceTrainer(model(), options, train_dataset=Stream(), sampler=sampler).train()
    with pytest.raises(IntegrationError, match="draws from the sampler, got one of Texts"):
        Shuffled(model(), options, train_dataset=Texts(), sampler=sampler).train()
    trainer = SourceTrainer(model(), options, train_dataset=Stream(), monitor=headway.SourceMonitor(["a", "b"]))
    trainer.train()  # without a sampler it is scored and followed
    assert trainer._feedback.monitor.rows[0]["samples"] == 8


@leaving_together
def _train_in_pair(rank: int, port: int, folder: Path) -> None:
    """One of two processes as torchrun starts them: an epoch of 48 texts needs two more for its last round of 5 + 5."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    changes = {"per_device_train_batch_size": 5, "save_strategy": "steps", "save_steps": 1, "ddp_backend": "gloo"}

    def make(name: str) -> Recording:
        sampler = SourceSampler(sources(), seed=3)
        return Recording(
            model(), arguments(folder / name, **changes), train_dataset=Tagged(Texts(), sampler.sources),
            sampler=sampler, signals=[headway.GMC(beta=0.9), headway.NormAll()],
            monitor=headway.SourceMonitor(["a", "b"], every=2),
        )  # fmt: skip

    whole = make("whole")
    whole.train()
    rows = whole._feedback.monitor.rows
    results = [(weights(whole.model), whole.seen, whole._feedback.sampler.counts, rows)]
    for stop in (3, 5):
        resumed = make(f"from-{stop}")
        resumed.train(str(folder / "whole" / f"checkpoint-{stop}"))
        drawn, listeners = whole.seen[: stop * 5] + resumed.seen, resumed._feedback
        results.append((weights(resumed.model), drawn, listeners.sampler.counts, listeners.monitor.rows))
    torch.save(results, folder / f"{rank}.pt")


@pytest.mark.slow
def test_two_processes_resume_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Also in the midst of an epoch, whose last batches are filled up with the first samples, and at its end."""
    mp.spawn(_train_in_pair, (free_port(), tmp_path), nprocs=2)
    pair = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    whole, seen, counts, rows = pair[0][0]
    assert len(seen) == 50
    assert sum(counts.values()) == 2 * SAMPLES
    for own in pair:
        for have, drawn, count, told in own:
            assert drawn == own[0][1]
            assert count == counts
            for column in ("step", "source", "samples", "loss", "gradient_norm"):
                assert [row[column] for row in told] == [row[column] for row in rows]
            for name, weight in have.items():
                assert torch.equal(weight, whole[name]), name


class Listening(SourceTrainer):
    """Keeps the packed batch of every step, the model as it was, and the scores."""

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if model.training and self.meter is not None:
            self.seen = {key: value.clone() for key, value in inputs.items() if isinstance(value, Tensor)}
            self.before = copy.deepcopy(model)
        return super().compute_loss(model, inputs, *args, **kwargs)


@pytest.mark.parametrize("kind", [GPT2LMHeadModel, LlamaForCausalLM])
def test_packed_batches_are_scored_by_sample(tmp_path: Path, kind: Any) -> None:
    packed = llama() if kind is LlamaForCausalLM else model(attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    texts = [
        {"input_ids": text["input_ids"][:length].tolist()}
        for text, length in zip(Texts(), Texts().lengths, strict=False)
    ]
    settings = arguments(tmp_path, max_steps=3, remove_unused_columns=False)
    trainer = Listening(
        packed, settings, train_dataset=texts, data_collator=DataCollatorWithFlattening(), signals=headway.NormAll()
    )
    trainer.train()
    tokens, labels, places = (trainer.seen[key][0] for key in ("input_ids", "labels", "position_ids"))
    starts = [*(places == 0).nonzero().flatten().tolist(), len(tokens)]
    own, parameters = trainer.before, list(trainer.before.parameters())
    norms = []
    for start, stop in pairwise(starts):
        logits = own(tokens[start:stop].unsqueeze(0)).logits[0]
        losses = F.cross_entropy(logits[:-1], tokens[start + 1 : stop], reduction="sum")
        losses = losses * (len(starts) - 1) / (labels != -100).sum()
        norms.append(sum(grad.abs().sum() for grad in torch.autograd.grad(losses, parameters, allow_unused=False)))
    assert trainer.scores is not None
    torch.testing.assert_close(trainer.scores["norm_all"], torch.stack(norms), rtol=1e-4, atol=1e-6)


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


# Streams


def streaming() -> SourceStream:
    """Words with followers and random words, as streaming datasets, from equal shares, with the default rule."""
    datasets = pytest.importorskip("datasets")
    kinds = {"text": False, "noise": True}
    make = datasets.IterableDataset.from_generator
    return SourceStream({name: make(texts, gen_kwargs={"noise": own}) for name, own in kinds.items()})


def reader() -> GPT2LMHeadModel:
    """What learns these words."""
    return model(vocab_size=2 * WORDS, n_embd=32, n_layer=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def test_a_stream_in_place_of_the_sampler_moves_away_from_noise(tmp_path: Path) -> None:
    stream = streaming()
    settings = {"max_steps": STEPS, "per_device_train_batch_size": BATCH // 2, "dataloader_num_workers": 2}
    SourceTrainer(reader(), arguments(tmp_path, **settings), sampler=stream).train()
    assert stream.weights["noise"] < HIGHEST


def test_a_dataset_with_a_column_of_sources_needs_no_tags(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = Texts(pad=False).tokens.tolist()
    column = [number % 2 for number in range(SAMPLES)]
    d = datasets.Dataset.from_dict({"input_ids": rows, "labels": rows, "source": column})
    sampler = SourceSampler(Sources(d["source"], names=["web", "books"]))
    trainer = Recording(model(), arguments(tmp_path, max_steps=3), train_dataset=d, sampler=sampler)
    trainer.train()
    drawn = list(sampler.counts.values())
    assert set(trainer.seen) == {0, 1}
    assert sampler.weights["web"] != 0.5
    assert sum(drawn) >= len(trainer.seen) == 12


def test_signals_by_source_have_the_source_as_their_group(tmp_path: Path) -> None:
    stream = streaming()
    signals = [headway.DeltaLoss(window=10), headway.Learnability()]
    trainer = SourceTrainer(reader(), arguments(tmp_path, max_steps=20), signals=signals, sampler=stream)
    trainer.train()
    assert bool(trainer.scores["delta_loss"].any())


def test_a_window_that_the_run_cannot_fill_is_said(tmp_path: Path) -> None:
    signal = headway.DeltaLoss()
    trainer = SourceTrainer(reader(), arguments(tmp_path, max_steps=2), signals=signal, sampler=streaming())
    with pytest.warns(UserWarning, match="4000 samples.*got 8"):
        trainer.train()


def test_a_stream_beside_another_dataset_is_refused(tmp_path: Path) -> None:
    trainer = SourceTrainer(model(), arguments(tmp_path), train_dataset=Texts(), sampler=streaming())
    with pytest.raises(IntegrationError, match="leave train_dataset= out"):
        trainer.train()
