from tests.runs.conftest import dummies, recorder, store

__all__ = ["dummies", "recorder", "store"]
