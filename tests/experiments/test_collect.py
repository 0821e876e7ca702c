"""Taking over the results of another clone: what goes further is copied, the rest is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.results import write_json
from experiments.cells import Cell, over_seeds
from experiments.collect import collect
from experiments.comparisons import path
from experiments.outcomes import Options
from linrec import InputError
from tests.experiments.test_seeds import outcome

CELL = Cell("ml-1m", "sasrec", "linrec")
SOFTMAX = replace(CELL, attention="softmax")


@pytest.fixture
def here(tmp_path: Path) -> Options:
    return Options(results=tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Options:
    options = Options(results=tmp_path / "there")
    write_json(options.path(CELL), outcome(CELL, 0.2))
    return options


def test_new_and_longer_outcomes_are_copied(here: Options, there: Options) -> None:
    seed = replace(CELL, seed=1)
    write_json(there.path(seed), outcome(seed, 0.21))
    write_json(here.path(CELL), outcome(CELL, 0.1, epochs=24))
    assert set(collect(over_seeds(), there.results, here)) == {CELL.name, seed.name}
    assert here.outcome(CELL) == there.outcome(CELL)
    assert collect(over_seeds(), there.results, here) == []


def test_a_shorter_outcome_is_not_copied(here: Options, there: Options) -> None:
    ours = outcome(CELL, 0.1, epochs=31)
    write_json(here.path(CELL), ours)
    assert collect([CELL], there.results, here) == []
    assert here.outcome(CELL) == ours


def test_comparisons_come_along(here: Options, there: Options) -> None:
    write_json(path(CELL, SOFTMAX, there), {"of": [], "tests": {}})
    assert collect([CELL], there.results, here) == [CELL.name, f"{SOFTMAX.name}--{CELL.name}"]
    assert path(CELL, SOFTMAX, here).exists()


@pytest.mark.parametrize("change", [{"seed": 4}, {"name": "ml-1m-core-linrec"}])
def test_an_outcome_of_another_cell_is_refused(
    here: Options, there: Options, change: dict[str, object]
) -> None:
    write_json(there.path(CELL), outcome(CELL, 0.2) | change)
    with pytest.raises(InputError, match="is not an outcome of ml-1m-sasrec-linrec"):
        collect([CELL], there.results, here)
    assert here.outcome(CELL) is None


def test_other_data_is_refused(here: Options, there: Options) -> None:
    write_json(here.results / "ml-1m" / "statistics.json", {"fingerprint": "g"})
    with pytest.raises(InputError, match="was trained on other data"):
        collect([CELL], there.results, here)
    assert here.outcome(CELL) is None


def test_a_missing_folder_is_named(here: Options, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        collect([CELL], tmp_path / "nowhere", here)
