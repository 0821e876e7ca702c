"""Everything small: a made-up dataset in the place of the paper's, and a recipe to match."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import linrec
from experiments.outcomes import Options
from linrec.data.downloads.demo import demo_events

RECIPE = """
[model]
width = 8
heads = 2
layers = 2
inner = 8
positions = 12
max_length = 12
[training]
epochs = 1
patience = 2
batch_tokens = 4096
"""


def small_options(folder: Path) -> Options:
    """Options under which a cell trains in a moment; all datasets are one and the same."""
    events, items = demo_events(users=60, items=120)
    linrec.prepare(events, folder / "data", items=items)
    recipe = folder / "small.toml"
    recipe.write_text(RECIPE)
    data = dict.fromkeys(("ml-1m", "ml-1m-all", "gowalla"), folder / "data")
    return Options(data, folder / "runs", folder / "results", recipe=str(recipe), threads=1)


def with_epochs(options: Options, epochs: int) -> Options:
    return replace(options, epochs=epochs)
