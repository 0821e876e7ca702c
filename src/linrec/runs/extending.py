"""A trained model with more items than it was trained on.

Where the model reads item vectors, a new item is placed by its vector, as one that the dataset had
without events. Where it does not and the run's items have features, a new item is placed at the
mean of the `NEIGHBOURS` trained items that are most similar by features
(`linrec.data.dataset.similarity`), each weighed by its similarity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.backbones import Backbone
from linrec.data.dataset.item_features import Field, ItemFeatures
from linrec.data.dataset.similarity import NOT_COMPARED, similarity_of
from linrec.layers.features import FieldEmbedding
from linrec.runs.catalogue import TRAINED, Catalogue
from linrec.runs.description import RunDescription
from linrec.runs.weights import AnyModel, build_around
from linrec.types import InputError

NEIGHBOURS = 10
LIMIT = 1e18  # of a number of a vector: its square still is a float32


@dataclass(frozen=True, slots=True)
class NewItem:
    """What is known of an item that a run has not seen.

    Examples:
        >>> from linrec.serving import NewItem
        >>> NewItem("film-999", features={"genre": ["Comedy"]}).title is None
        True
    """

    item: str
    vector: tuple[float, ...] | None = None
    title: str | None = None
    features: Mapping[str, Any] = field(default_factory=dict)


def why_no_new_items(model: AnyModel, catalogue: Catalogue) -> str | None:
    """One sentence on why the model has no place for items it was not trained on, if so."""
    if not isinstance(model, Backbone):
        return "a baseline counts events, so it has nothing to place an item without events by"
    if model.given_vectors is None and not feature_columns(catalogue):
        return (
            "the run reads no item vectors and its items have no features, so it has nothing to "
            "place a new item by; prepare the data with item vectors or an item file and train "
            "again"
        )
    return None


def feature_columns(catalogue: Catalogue) -> list[str]:
    return [name for name in catalogue.table.columns if name not in NOT_COMPARED]


def problems_of(items: Sequence[NewItem], model: AnyModel, catalogue: Catalogue) -> dict[str, str]:
    """One sentence for each item that cannot be placed, by its id."""
    found: dict[str, str] = {}
    for item in items:
        try:
            _check(item, model, catalogue)
        except InputError as error:  # noqa: PERF203 - each item has its own problem
            found[item.item] = str(error)
    left = [item for item in items if item.item not in found]
    if left and catalogue.vectors is None:
        shares = neighbours(_longer_table(catalogue, left), catalogue)
        for item, row in zip(left, shares, strict=True):
            if not row.any():
                found[item.item] = (
                    f"item {item.item!r} shares no feature with any item that the run was trained "
                    "on; give it features that others have"
                )
    return found


def with_items(
    model: Backbone, description: RunDescription, catalogue: Catalogue, items: Sequence[NewItem]
) -> tuple[Catalogue, Backbone]:
    """The same model of more items, none of which has a problem and each of which is new.

    Those it had keep their indices and their scores.
    """
    table, vectors, near = _longer_table(catalogue, items), catalogue.vectors, None
    if vectors is None:
        near = neighbours(table, catalogue)
    else:
        vectors = np.concatenate([vectors, np.array([item.vector for item in items], np.float32)])
    # a field of ids has one value for each item
    fields = [_longer(each, len(items)) for each in description.features]
    features = ItemFeatures.of(table, fields, description.context, vectors)
    made = build_around(_longer_weights(model, len(items), near), description.model, features)
    assert isinstance(made, Backbone)
    longer = Catalogue(table, vectors, catalogue.added + len(items))
    made.untrained = longer.untrained
    return longer, made.eval()


def neighbours(table: pl.DataFrame, catalogue: Catalogue) -> NDArray[np.float32]:
    """How much each known item says of each new one, [new, known + 1].

    A row sums to 1, or is 0 where an item resembles none. table: the known items, then the new.
    """
    similarity, n_known = similarity_of(table), len(catalogue)
    cosines = np.zeros((len(table) - n_known, n_known + 1), np.float32)
    if similarity is not None:
        vectors = similarity.vectors
        cosines = np.maximum(vectors[n_known + 1 :] @ vectors[: n_known + 1].T, 0.0)
    if catalogue.cold is not None:
        cosines[:, catalogue.cold.numpy()] = 0.0
    if n_known > NEIGHBOURS:
        order = np.argsort(-cosines, axis=1, kind="stable")
        np.put_along_axis(cosines, order[:, NEIGHBOURS:], 0.0, axis=1)
    total = cosines.sum(1, keepdims=True)
    return np.asarray(np.divide(cosines, total, out=cosines, where=total > 0))


def _longer_table(catalogue: Catalogue, items: Sequence[NewItem]) -> pl.DataFrame:
    """The items of the catalogue, then the new ones; ids are text, and there is a title."""
    old = catalogue.table.with_columns(pl.col("item").cast(pl.String))
    if "title" not in old.columns:
        old = old.with_columns(title=pl.lit(None, pl.String))
    own = {
        "item": pl.Series([item.item for item in items], dtype=pl.String),
        "title": pl.Series([item.title for item in items], dtype=pl.String),
    }
    for name in ("events", TRAINED):
        if name in old.columns:
            own[name] = pl.Series([0] * len(items), dtype=old[name].dtype)
    for name in feature_columns(catalogue):
        own[name] = pl.concat([_cell(each, old[name]) for each in items])
    return pl.concat([old, pl.DataFrame(own).select(old.columns)])


def _check(item: NewItem, model: AnyModel, catalogue: Catalogue) -> None:
    reason = why_no_new_items(model, catalogue)
    if reason is not None:
        raise InputError(reason)
    assert isinstance(model, Backbone)
    _check_vector(item, model)
    known = feature_columns(catalogue)
    for name in item.features:
        if name not in known:
            choice = f"choose from {', '.join(known)}" if known else "its items have none at all"
            raise InputError(f"item {item.item!r}: the run has no item feature {name!r}; {choice}")
        _cell(item, catalogue.table[name])
    if model.given_vectors is None and not item.features:
        raise InputError(
            f"item {item.item!r} has no features, by which this run places new items; give some of "
            f"{', '.join(known)}"
        )


def _check_vector(item: NewItem, model: Backbone) -> None:
    given = model.given_vectors
    if given is None:
        if item.vector is not None:
            raise InputError(
                f"item {item.item!r} has a vector, and the run reads none; leave it out"
            )
        return
    width = given.vectors.shape[1]
    if item.vector is None:
        raise InputError(
            f"item {item.item!r} has no vector, by which this run places new items; give {width} "
            "numbers"
        )
    if len(item.vector) != width:
        raise InputError(
            f"item {item.item!r} has a vector of {len(item.vector)} numbers, and those of the run "
            f"have {width}; make it as the others were made"
        )
    values = np.array(item.vector, np.float64)
    if not (np.abs(values) < LIMIT).all():  # NaN is not either
        raise InputError(
            f"item {item.item!r}: its vector holds a number that is not finite or beyond "
            f"{LIMIT:g}; make it as the others were made"
        )
    if not np.array(values, np.float32).any():
        raise InputError(f"item {item.item!r}: its vector is zero, which says nothing about it")


def _cell(item: NewItem, column: pl.Series) -> pl.Series:
    """A feature of one item, as a column of the catalogue has it."""
    value, many = item.features.get(column.name), isinstance(column.dtype, pl.List)
    if many and value is not None:
        value = [str(each) for each in (value if isinstance(value, list | tuple) else [value])]
    elif isinstance(value, list | tuple):  # one value in a list of its own
        if len(value) != 1:
            raise InputError(
                f"item {item.item!r}: the feature {column.name!r} has one value for each item of "
                f"the run, not {len(value)}; give one"
            )
        value = value[0]
    try:
        made = pl.Series(column.name, [value], dtype=column.dtype if many else None, strict=False)
        made = made.cast(column.dtype)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        made = pl.Series(column.name, [None], dtype=column.dtype)
    if value is not None and made.null_count():
        raise InputError(
            f"item {item.item!r}: the feature {column.name!r} cannot be {value!r}, where those of "
            f"the run are of type {column.dtype}"
        )
    return made


def _longer(each: Field, more: int) -> Field:
    return replace(each, items=each.items + more) if each.kind == "id" else each


def _longer_weights(
    model: Backbone, more: int, near: NDArray[np.float32] | None
) -> dict[str, Tensor]:
    """The weights with a row for each new item.

    near: the weights of known items; None: the own part of a new item is zero.
    """
    weights, known = dict(model.state_dict()), model.n_items + 1
    mixed = None if near is None else torch.from_numpy(near)
    for name in model.per_item:
        old = weights[name]
        rows = old.new_zeros(more, *old.shape[1:])
        if mixed is not None:
            rows = (mixed.to(old) @ old[:known].reshape(known, -1)).reshape(rows.shape)
        weights[name] = torch.cat([old[:known], rows, old[known:]])
    for name, module in model.named_modules():
        if isinstance(module, FieldEmbedding) and module.field.kind == "id":
            old = weights[f"{name}.value.weight"]
            weights[f"{name}.value.weight"] = torch.cat([old, old[1:].mean(0).expand(more, -1)])
    return weights
