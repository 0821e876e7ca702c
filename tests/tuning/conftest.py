from tests.cli.conftest import linrec, refused
from tests.training.fixtures import dataset, store

__all__ = ["dataset", "linrec", "refused", "store"]
