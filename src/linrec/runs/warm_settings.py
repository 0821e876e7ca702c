"""The settings of a training: those of a recipe, or of the run it starts from, and changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linrec.backbones.config import ModelConfig
from linrec.baselines import BaselineConfig
from linrec.losses.config import LossConfig
from linrec.runs.config import AnyConfig, RunConfig, parse, with_settings
from linrec.runs.recipes import recipe as find_recipe
from linrec.runs.run import Run
from linrec.settings import settings_of
from linrec.types import InputError, argument

EPOCHS = 5
"""Epochs of a warm start, or those of the run if they are fewer.

A fixed number and not a share of the run's, because that may have been started in the same way:
shares of shares come to nothing within a week.
"""

MAY_DIFFER = ("dropout", "id_dropout")
"""Settings of a model that change neither its weights nor what they mean."""


def settings_for(recipe: str, start: Path | None, settings: Mapping[str, Any]) -> RunConfig:
    """Those of a recipe, or of the run at `start`; `settings` are changes to them."""
    if start is None:
        return find_recipe(recipe, settings)
    if recipe != "default":
        raise InputError(
            f"a warm start has the settings of {start}, so it has no use for the recipe {recipe}; "
            f"leave {argument('recipe')} out and name the settings that are to change"
        )
    return warm_settings(start, settings)


def warm_settings(folder: Path, settings: Mapping[str, Any]) -> RunConfig:
    """What the run at `folder` was trained with, for fewer epochs; `settings` are changes to it."""
    run = Run.open(folder)
    before = run.config
    if isinstance(before.model, BaselineConfig):
        raise InputError(
            f"{folder} holds the baseline {before.model.backbone}, which counts and has no weights "
            f"to start from; leave {argument('start')} out"
        )
    changes = {name: value for name, value in settings.items() if value is not None}
    for name in ("repeat_head", "item_vectors"):
        if changes.get(name) == "auto":  # was decided for the run
            del changes[name]
    _check_backbone(folder, before.model, changes)
    kept = before.as_dict()
    for choice, part in (("loss", before.loss), ("split", before.split)):
        if changes.get(choice, getattr(part, choice)) != getattr(part, choice):
            # another loss or split has other settings; what all of them have stays
            common = settings_of(LossConfig) if choice == "loss" else {"targets": None}
            for name in settings_of(part):
                if name not in common:
                    del kept["training"][name]
    kept["training"]["epochs"] = min(EPOCHS, before.training.epochs)
    config = parse(with_settings(kept, changes))
    check_same_model(folder, before.model, config.model)
    return config


def check_same_model(folder: Path, before: ModelConfig, now: AnyConfig) -> None:
    """Refuse a model that the weights of the run do not fit, or mean something else in."""
    for name in settings_of(before):
        old, new = getattr(before, name), getattr(now, name, None)
        if old != new and name not in MAY_DIFFER:
            raise InputError(
                f"{folder} has {name} {_shown(old)} and not {_shown(new)}, and a warm start keeps "
                f"its model; leave {argument(name)} out, or train without {argument('start')}"
            )


def _check_backbone(folder: Path, before: ModelConfig, changes: Mapping[str, Any]) -> None:
    """First, because another backbone explains settings that this one has no use for."""
    wanted = changes.get("backbone", before.backbone)
    if wanted != before.backbone:
        raise InputError(
            f"{folder} has the backbone {before.backbone} and not {wanted}, and a warm start keeps "
            f"its model; leave {argument('backbone')} out, or train without {argument('start')}"
        )


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
