"""TRL's SFTTrainer on a stream of Hugging Face datasets."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("trl")

from datasets import IterableDataset
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig

from headway.errors import IntegrationError
from headway.integrations.trl import SourceSFTTrainer
from headway.selection import SourceStream
from tests.integrations.noisy import BATCH, HIGHEST, STEPS, texts
from tests.integrations.noisy import WORDS as HALF

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:trl"),
]
WORDS = [f"w{number}" for number in range(2 * HALF)]


def tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    vocabulary = {word: number for number, word in enumerate([*WORDS, "<pad>", "<eos>"])}
    words = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def written(noise: bool):
    for row in texts(noise):
        yield {"text": " ".join(WORDS[number] for number in row["input_ids"])}


def trainer(folder: Path, stream: SourceStream, **changes) -> SourceSFTTrainer:
    set_seed(0)
    end = len(WORDS) + 1
    sizes = {"vocab_size": end + 1, "n_positions": 32, "n_embd": 32, "n_layer": 1, "n_head": 2}
    drop = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": end, "eos_token_id": end}
    settings = {
        "output_dir": str(folder), "per_device_train_batch_size": BATCH // 2, "max_steps": STEPS, "learning_rate": 1e-2,
        "report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "disable_tqdm": True,
        "dataloader_pin_memory": False, "bf16": False, "gradient_checkpointing": False, "max_length": 16,
    }  # fmt: skip
    config = SFTConfig(**{**settings, **changes})
    model = GPT2LMHeadModel(GPT2Config(**sizes, **drop))
    return SourceSFTTrainer(model, config, sampler=stream, processing_class=tokenizer())


def stream() -> SourceStream:
    kinds, make = {"text": False, "noise": True}, IterableDataset.from_generator
    return SourceStream({name: make(written, gen_kwargs={"noise": own}) for name, own in kinds.items()})


def test_shares_move_away_from_noise(tmp_path: Path) -> None:
    own = stream()
    trainer(tmp_path, own).train()
    assert own.weights["noise"] < HIGHEST


def test_only_what_trl_can_prepare(tmp_path: Path) -> None:
    with pytest.raises(IntegrationError, match="to_iterable_dataset"):
        trainer(tmp_path, SourceStream({"a": [{"text": "w1"}]}))


def low_or_high(high: bool):
    """Texts of three words, of which each source has its own half."""
    for number in itertools.count():
        yield {"text": " ".join(WORDS[HALF * high + (number + place) % HALF] for place in range(3))}


def test_packing_keeps_the_source_of_each_row(tmp_path: Path) -> None:
    kinds = {"low": False, "high": True}
    make = IterableDataset.from_generator
    own = SourceStream({name: make(low_or_high, gen_kwargs={"high": high}) for name, high in kinds.items()})
    trainer(tmp_path, own, packing=True, packing_strategy="wrapped")
    rows = list(itertools.islice(own, 40))
    assert {row["source"] for row in rows} == {0, 1}
    for row in rows:
        assert len(row["input_ids"]) == 16  # several texts
        assert {token // HALF for token in row["input_ids"] if token < len(WORDS)} == {row["source"]}
