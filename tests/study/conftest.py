from tests.analysis.conftest import quick_disk
from tests.runs.conftest import dummies, recorder, store

__all__ = ["dummies", "quick_disk", "recorder", "store"]
