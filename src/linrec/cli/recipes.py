"""`linrec recipes`: the shipped recipes."""

from __future__ import annotations


def recipes() -> None:
    """List the shipped recipes and what each changes of the defaults.

    Examples:

    \b
      linrec recipes
      linrec train data/ml-1m --out runs/paper --recipe paper-ml-1m
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from linrec.runs.config import RunConfig
    from linrec.runs.config import recipes as shipped

    defaults = asdict(RunConfig())
    table = Table("recipe", "what it is", "differs from the default in", title="Recipes")
    for name, config in shipped().items():
        changed = [
            f"{key} {value}"
            for part in ("model", "training")
            for key, value in asdict(config)[part].items()
            if value != defaults[part][key]
        ]
        table.add_row(name, config.description, ", ".join(changed) or "nothing")
    Console().print(table)
