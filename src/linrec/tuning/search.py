"""What is searched: a run with everything decided but the settings of the space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linrec.backbones.config import ModelConfig
from linrec.data.dataset.store import SequenceStore
from linrec.recommender import open_data
from linrec.runs.config import RunConfig, parse, with_settings
from linrec.runs.recipes import recipe as find_recipe
from linrec.training.context import with_context
from linrec.training.plan import Plan, trainable
from linrec.training.trackers import settings_of_run
from linrec.tuning.defaults import default_space
from linrec.tuning.space import Space, as_content, corners, read_space
from linrec.types import InputError, argument

if TYPE_CHECKING:
    from linrec.recommender import Data


@dataclass(frozen=True)
class Search:
    config: RunConfig  # the recipe and what was given by name; the first trial where it can be
    space: Space
    store: SequenceStore

    @classmethod
    def of(
        cls,
        data: Data,
        recipe: str,
        space: str | Path | Mapping[str, Any] | None,
        settings: Mapping[str, Any],
        warn: Callable[[str], None],
    ) -> Search:
        """space: None for the default one. settings: given by name, so they are not searched."""
        given = {name: value for name, value in settings.items() if value is not None}
        config = _tunable(find_recipe(recipe, given), given)
        read = None if space is None else read_space(space)
        for name in read or ():
            if name in given:
                raise InputError(
                    f"{name} is in the space and given as {argument(name, given[name])}; leave "
                    "one of the two out"
                )
        store = open_data(data)
        config = _decided(config, store, warn, given)
        chosen = default_space(config, given) if read is None else read
        if not chosen:
            raise InputError("every setting of the default space is given; leave some of them out")
        _check_combinations(config, chosen)
        return cls(config, chosen, store)

    @property
    def settings(self) -> dict[str, Any]:
        return settings_of_run(self.config)

    def identity(self, pruning: bool) -> dict[str, Any]:
        """What makes a study this one; budget and engine may change."""
        fixed = {name: value for name, value in self.settings.items() if name not in self.space}
        return {
            "data": self.store.fingerprint,
            "settings": fixed,
            "space": as_content(self.space),
            "pruning": pruning,
        }


def trial_config(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """The run of a trial."""
    return parse(with_settings(config.as_dict(), values))


def _tunable(config: RunConfig, given: Mapping[str, Any]) -> RunConfig:
    if not isinstance(config.model, ModelConfig):
        raise InputError(
            f"the baseline {config.model.backbone} chooses its settings when it counts; `linrec "
            f"train` does that, so leave {argument('backbone')} out"
        )
    training = replace(config.training, final=False)  # what is held out is needed
    if training.precision == "auto":
        if "precision" in given:
            raise InputError(
                f"{argument('precision', 'auto')} is decided by a timing, so the same settings "
                f"could give two figures; choose {argument('precision', 'float32')} or "
                f"{argument('precision', 'bfloat16')}"
            )
        training = replace(training, precision="float32")
    return replace(config, training=training)


def _decided(
    config: RunConfig,
    store: SequenceStore,
    warn: Callable[[str], None],
    given: Mapping[str, Any],
) -> RunConfig:
    """With all that follows from the data, once for all trials."""
    split = trainable(config.split.of(store))
    with_context(store, config.model, split, ())
    return Plan.of(config, store, warn, tuple(given)).config


def _check_combinations(config: RunConfig, space: Space) -> None:
    """Refuse a space with a combination that no run can have."""
    values: Mapping[str, Any] = {}
    try:
        for values in corners(space):
            trial_config(config, values)
    except InputError as error:
        words = ", ".join(f"{name} {value}" for name, value in values.items())
        raise InputError(f"the space allows {words}, but {error.args[0]}") from None
