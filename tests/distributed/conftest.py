from tests.training.fixtures import dataset, run, store, trained

__all__ = ["dataset", "run", "store", "trained"]
