"""Recipes: the settings of a run as a TOML file, shipped or your own."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import Any

from linrec.baselines.config import CONFIGS as BASELINE_CONFIGS
from linrec.baselines.config import BaselineConfig
from linrec.files.toml import toml_table, toml_value
from linrec.runs.config import Content, RunConfig, parse, with_settings
from linrec.types import InputError, argument

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = resources.files("linrec") / "recipes"


def recipes() -> dict[str, RunConfig]:
    """The shipped recipes, by name."""
    return {name: recipe(name) for name in _shipped()}


def recipe(name: str, settings: Content | None = None) -> RunConfig:
    """A shipped recipe by name, or your own by the path of its TOML file.

    settings: what to change in it, by name.
    """
    content = _read(name)
    config = parse(content, f"recipe {name}")
    if not settings:
        return config
    baseline = settings.get("backbone")
    if baseline in BASELINE_CONFIGS and not isinstance(config.model, BaselineConfig):
        if name != "default":
            raise InputError(
                f"the baseline {baseline} counts and is not trained, so it has no use for the "
                f"recipe {name}; leave {argument('recipe')} out"
            )
        content = {}
    return parse(with_settings(content, settings))


def settings_in(name: str) -> dict[str, Any]:
    """What a recipe sets, by the names of the settings; everything else has its own default."""
    content = _read(name)
    settings: dict[str, Any] = content.get("model", {}) | content.get("training", {})
    return settings


def is_shipped(name: str) -> bool:
    """Whether it names one of linrec's own, and not a file."""
    return not name.endswith(".toml")


def recipe_toml(config: RunConfig, description: str) -> str:
    """A recipe with every setting of a run, whatever the defaults are when it is read."""
    content = config.as_dict()
    tables = [toml_table(part, content[part]) for part in ("model", "training")]
    return "\n".join([f"description = {toml_value(description)}\n", *tables])


def _read(name: str) -> dict[str, Any]:
    if is_shipped(name) and name not in _shipped():
        raise InputError(
            f"unknown recipe {name!r}; choose from {', '.join(_shipped())}, or give a .toml file"
        )
    path = FOLDER / f"{name}.toml" if is_shipped(name) else Path(name)
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InputError(f"cannot read recipe {name}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"recipe {name} is not valid TOML: {error}") from error


def _shipped() -> list[str]:
    names = (entry.name for entry in FOLDER.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))
