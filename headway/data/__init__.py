"""Image datasets in their official file formats: digits (embedded), mnist, fashion-mnist, cifar10."""

from headway.data.dataset import Dataset, Split
from headway.data.loading import DATASETS, load
from headway.data.progress import Progress

__all__ = ["DATASETS", "Dataset", "Progress", "Split", "load"]
