"""A training that starts from the weights of another run, on newer data.

Rows of weights are matched by the names of items and of feature values, never by index. All other
tensors have the same shape in both models, because a warm start keeps the model's settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from linrec.backbones import Backbone
from linrec.backbones.config import ModelConfig
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.item_features import FIRST, UNKNOWN, Field, ItemFeatures
from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.splits import Split
from linrec.data.preparing.splitting import SplitConfig
from linrec.layers.context import ContextField
from linrec.layers.features import FieldEmbedding
from linrec.runs.config import RunConfig
from linrec.runs.run import Run
from linrec.runs.warm_settings import check_same_model
from linrec.types import InputError, argument


class Changes(NamedTuple):
    """How many names both the run and the new data have, only the data, and only the run."""

    old: int
    new: int
    gone: int


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A run and the items that are to be trained on."""

    run: Run
    model: Backbone  # the run's
    items: IdMap  # of the new data

    @classmethod
    def open(cls, folder: Path, items: IdMap, out: Path | None) -> WarmStart:
        """out: where the new run is written."""
        if out is not None and out.resolve() == folder.resolve():
            raise InputError(
                f"{folder} cannot be replaced by a training that starts from it; give another "
                f"path as {argument('out')}"
            )
        run, model = Run.load(folder)
        assert isinstance(model, Backbone), "warm_settings refuses baselines"
        return cls(run, model, items)

    @cached_property
    def rows(self) -> IntArray:
        """[n_items + 1], the run's index of each item, -1 for new ones; PAD stays PAD.

        An item that the run had no training event of counts as new: its vector was only ever
        pushed away from other items' targets.
        """
        rows = self.run.catalogue.ids.index_of(self.items.ids)
        cold = self.run.catalogue.cold
        if cold is not None:
            rows[cold.numpy()[rows] & (rows > 0)] = -1
        return np.concatenate([[0], rows])

    def with_bounds(self, fields: Sequence[Field]) -> tuple[Field, ...]:
        """The fields of the new data, with the run's buckets of numbers.

        Buckets have no names to match: new bounds would give each vector another meaning.
        """
        before = {field.name: field for field in self.run.description.features}
        return tuple(
            replace(field, bounds=before[field.name].bounds)
            if field.kind == "numeric" and before[field.name].kind == "numeric"
            else field
            for field in fields
        )

    def check(self, model: ModelConfig, features: ItemFeatures) -> None:
        """Refuse a model of other settings, and features or vectors of another kind."""
        before = self.run.config.model
        assert isinstance(before, ModelConfig)
        check_same_model(self.run.folder, before, model)
        kinds = {field.name: field.kind for field in self.run.description.features}
        for field in features.fields:
            if field.kind != kinds[field.name]:
                raise InputError(
                    f"the feature {field.name} was {kinds[field.name]} in {self.run.folder} and is "
                    f"{field.kind} now; prepare the data with "
                    f"{argument('feature_kinds', f'{field.name}={kinds[field.name]}')}"
                )

        vectors = self.run.catalogue.vectors
        if vectors is not None and features.vectors is not None:
            before_width, width = vectors.shape[1], features.vectors.shape[1]
            if width != before_width:
                raise InputError(
                    f"the item vectors of {self.run.folder} have {before_width} numbers and those "
                    f"of the new data {width}; prepare it with vectors of the same origin"
                )

    def fill(self, model: Backbone) -> None:
        """Give a new model the weights of the run; what is new keeps a small random part."""
        weights, state = self.model.state_dict(), model.state_dict()
        filled = {name: weights[name] for name in state}
        for name in model.per_item:
            filled[name] = self._per_item(weights[name], state[name])
        if model.given_vectors is not None:
            # a new item that has a vector begins where that alone places it
            has_vector = (model.given_vectors.vectors[:-1] != 0).any(-1).cpu()
            new = torch.from_numpy(self.rows) < 0
            filled["item.weight"][: len(new)][new & has_vector] = 0.0
        before = dict(self.model.named_modules())
        for name, module in model.named_modules():
            if isinstance(module, FieldEmbedding | ContextField):
                old = before[name]
                assert isinstance(old, FieldEmbedding | ContextField)
                key = f"{name}.value.weight"
                filled[key] = self._per_value(old.field, module.field, weights[key], state[key])
        model.load_state_dict(filled)

    def _per_item(self, old: Tensor, fresh: Tensor) -> Tensor:
        """Row i belongs to item i, and rows after the last item to something else, as a mask."""
        rows = torch.from_numpy(self.rows)
        filled = old[rows.clamp(min=0)]
        known = rows[1:][rows[1:] > 0]
        # as an item that little is known of: the mean of all, most of which are rare
        new = rows < 0
        filled[new] = fresh[: len(rows)][new] + (old[known].mean(0) if len(known) else 0.0)
        return torch.cat([filled, old[self.model.n_items + 1 :]])

    def _per_value(self, before: Field, now: Field, old: Tensor, fresh: Tensor) -> Tensor:
        if now.kind == "numeric":
            return old
        if now.kind == "id":  # the special codes are no items
            values = self._per_item(old[FIRST - 1 :], fresh[FIRST - 1 :])
            return torch.cat([old[:FIRST], values[1:]])
        codes = {value: FIRST + index for index, value in enumerate(before.values)}
        # a value without a vector was read as unknown, and the model begins with that
        rows = [codes.get(value, UNKNOWN) for value in now.values]
        return torch.cat([old[:FIRST], old[torch.tensor(rows, dtype=torch.int64)]])

    def changes(self, fields: Sequence[Field]) -> dict[str, Changes]:
        """What is old, new and gone: items, and the values of each feature with a vocabulary."""
        old = int((self.rows > 0).sum())
        cold = self.run.catalogue.cold
        trained = len(self.run.catalogue) - (0 if cold is None else int(cold.sum()))
        found = {"items": Changes(old, len(self.items) - old, trained - old)}
        described = self.run.description
        before = {field.name: set(field.values) for field in described.features + described.context}
        for field in fields:
            if field.kind in ("categorical", "multi"):
                had, has = before[field.name], set(field.values)
                found[f"values of {field.name}"] = Changes(
                    len(had & has), len(has - had), len(had - has)
                )
        return found

    def record(self, fields: Sequence[Field]) -> dict[str, Any]:
        """What the new run says of its start."""
        changes = {name: each._asdict() for name, each in self.changes(fields).items()}
        return {
            "run": str(self.run.folder.resolve()),
            "weights": self.run.model_checksums[-1],
            "changes": changes,
        }

    def table(self, fields: Sequence[Field]) -> str:
        """The changes, to be read."""
        changes = self.changes(fields)
        title = f"Warm start from {self.run.folder}"
        width = max(len(title), *(len(name) for name in changes))
        lines = [f"{title:<{width}}  {'old':>9}  {'new':>9}  {'gone':>9}"]
        for name, each in changes.items():
            lines.append(f"{name:<{width}}  {each.old:>9,}  {each.new:>9,}  {each.gone:>9,}")
        return "\n".join(lines)

    def warn_of_data(
        self, split: Split, config: RunConfig, named: frozenset[str], warn: Callable[[str], None]
    ) -> None:
        """Warn of items under other names, of held-out events that the run may have been trained
        on, and of a split that holds out all that is new."""
        if len(self.items) and not (self.rows > 0).any():
            warn(
                f"no item of the data is one of those that {self.run.folder} was trained on (here "
                f"{self.items.ids[0]!r}, there {self.run.catalogue.ids.ids[0]!r}), so no item "
                "keeps anything; if they are the same items, give them the same ids"
            )
        before = self.run.config.split
        if config.split.split == "temporal" and not {"valid_from", "test_from"} & named:
            warn(
                f"the split is still {before.words}, so nothing newer is trained on; give "
                f"valid_from and test_from of the new data"
            )
        if not (self.run.description.final or _holds_out_more(before, config.split)):
            return
        newest, at = self.run.description.dataset.get("newest"), split.test.at
        if newest is None or at is None:
            how_many = "some test events"
        else:
            older = int((at <= newest).sum())
            if not older:
                return
            how_many = f"{older:,} of {len(at):,} test requests"
        warn(
            f"{self.run.folder} may have been trained on {how_many}, which are not newer than its "
            "own data: the figures flatter the model; a temporal split of newer events does not"
        )


def _holds_out_more(before: SplitConfig, now: SplitConfig) -> bool:
    """Whether an event may be held out now that was trained on before, in a log that has grown."""
    if before.split != now.split:
        return True
    if now.split == "temporal":
        return now.moments[0] < before.moments[0]
    return (now.last or 1) > (before.last or 1)
