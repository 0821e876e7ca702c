"""Taking over what another clone has trained: its JSON files, where they go further than ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.results import write_json
from experiments import attention, comparisons
from experiments.cells import Cell
from experiments.outcomes import Options, Outcome, read
from linrec import InputError
from linrec.data.dataset.store import same_dataset


def collect(cells: Sequence[Cell], folder: Path, options: Options) -> list[str]:
    """Copy outcomes with at least as many epochs as ours, and what was derived from them.

    `folder` is the results folder of the other clone. Returns the names of the copied files.
    """
    if not folder.is_dir():
        raise InputError(f"--collect {folder}: there is no such folder; give a results folder")
    checked = [(cell, _outcome(cell, folder, options)) for cell in cells]
    taken = {options.path(cell): outcome for cell, outcome in checked if outcome is not None}
    for path, outcome in taken.items():
        write_json(path, outcome)
    derived = {
        path: outcome
        for cell in cells
        for path in _derived(cell, options)
        if (outcome := read(folder / path.relative_to(options.results))) and outcome != read(path)
    }
    for path, outcome in derived.items():
        write_json(path, outcome)
    return [path.stem for path in (*taken, *derived)]


def _outcome(cell: Cell, folder: Path, options: Options) -> Outcome | None:
    """The other clone's outcome of a cell, if it goes as far as ours and differs from it."""
    path = folder / options.path(cell).relative_to(options.results)
    new, known = read(path), options.outcome(cell)
    if new is None or new == known:
        return None
    _check(new, cell, path, options)
    return new if known is None or new["epochs"] >= known["epochs"] else None


def _check(outcome: Outcome, cell: Cell, path: Path, options: Options) -> None:
    """An outcome of other settings or other data would be shown under a wrong name."""
    model = outcome["config"]["model"]
    settings = (outcome["name"], model["backbone"], model["attention"], outcome["seed"])
    if settings != (cell.name, cell.backbone, cell.attention, cell.seed):
        raise InputError(f"{path} is not an outcome of {cell.name}; nothing was copied")
    data = read(options.results / cell.dataset / "statistics.json")
    if data is not None and not same_dataset(outcome["fingerprint"], data["fingerprint"]):
        raise InputError(
            f"{path} was trained on other data ({outcome['fingerprint']} instead of "
            f"{data['fingerprint']}); prepare it as docs/results.md says and train it again"
        )


def _derived(cell: Cell, options: Options) -> Iterator[Path]:
    yield attention.path(cell, options)
    for other in comparisons.compared_with(cell):
        yield comparisons.path(cell, other, options)
