"""Scores and a stream of sources in TRL's SFTTrainer."""

from __future__ import annotations

from typing import Any

from headway.errors import IntegrationError
from headway.integrations.transformers import SourceTrainerMixin
from headway.integrations.versions import require
from headway.selection import SourceStream

require("trl", "datasets")

from datasets import IterableDataset  # noqa: E402
from trl.trainer.sft_trainer import SFTTrainer  # noqa: E402

__all__ = ["SourceSFTTrainer"]


class SourceSFTTrainer(SourceTrainerMixin, SFTTrainer):
    """An SFTTrainer that scores its samples; see `SourceTrainerMixin`.

        stream = SourceStream({"web": web, "books": books})  # streaming datasets of Hugging Face
        SourceSFTTrainer(model, SFTConfig(max_steps=1000), sampler=stream, processing_class=tokenizer).train()

    TRL prepares (formats, tokenizes, truncates, packs) each source by itself, so a packed row has one source.

    Raises:
        IntegrationError: a source of the stream is no streaming dataset of Hugging Face.
    """

    def __init__(self, *args: Any, sampler: Any = None, **kwargs: Any) -> None:
        self._to_prepare = sampler if isinstance(sampler, SourceStream) else None
        if self._to_prepare is not None:
            for name, source in self._to_prepare.sources.items():
                if not isinstance(source, IterableDataset):
                    raise IntegrationError(
                        f"{name}: expected a datasets.IterableDataset, which TRL can prepare, got "
                        f"{type(source).__name__}; make one: dataset.to_iterable_dataset()"
                    )
            kwargs["train_dataset"] = next(iter(self._to_prepare.sources.values()))  # TRL asks for one of its own kinds
        super().__init__(*args, sampler=sampler, **kwargs)
        if self._to_prepare is not None:
            self.train_dataset: Any = self._to_prepare

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Prepare a dataset; in place of the stream's first source, all of them."""
        stream = self._to_prepare
        if stream is None or dataset is not next(iter(stream.sources.values())):
            return super()._prepare_dataset(dataset, *args, **kwargs)
        prepare = super()._prepare_dataset
        stream.replace_sources(lambda source: prepare(source, *args, **kwargs))
        return next(iter(stream.sources.values()))
