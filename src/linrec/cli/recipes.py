"""`linrec recipes`: the shipped recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linrec.runs.config import RunConfig


def recipes() -> None:
    """List the shipped recipes and what each changes of the defaults.

    Examples:

    \b
      linrec recipes
      linrec train data/ml-1m --out runs/paper --recipe paper-ml-1m
    """
    from rich.console import Console
    from rich.table import Table

    from linrec.runs.recipes import recipes as shipped

    table = Table("recipe", "what it is", "differs from the default in", title="Recipes")
    for name, config in shipped().items():
        table.add_row(name, config.description, ", ".join(_changes(config)) or "nothing")
    Console().print(table)


def _changes(config: RunConfig) -> list[str]:
    """What differs from the recipe `default`; what that has not, from its own defaults."""
    from linrec.runs.config import RunConfig
    from linrec.runs.recipes import recipe

    default = recipe("default").as_dict()
    own = RunConfig(model=type(config.model)(), loss=type(config.loss)()).as_dict()
    return [
        f"{name} {value}"
        for part in ("model", "training")
        for name, value in config.as_dict()[part].items()
        if value != default[part].get(name, own[part][name])
    ]
