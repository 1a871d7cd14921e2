"""Image datasets by name: digits (embedded), mnist, fashion-mnist and cifar10 in their official file formats.

`register_dataset` adds others.
"""

from headway.data.catalogue import Dataset, Split
from headway.data.files import Progress
from headway.data.loading import DATASETS, DatasetEntry, load, register_dataset, unregister_dataset

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetEntry",
    "Progress",
    "Split",
    "load",
    "register_dataset",
    "unregister_dataset",
]
