from tests.cli.conftest import linrec, refused
from tests.training.conftest import ctrl_c
from tests.training.fixtures import dataset, store

__all__ = ["ctrl_c", "dataset", "linrec", "refused", "store"]
