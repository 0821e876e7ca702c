"""The context that a model reads: the vocabulary of each field, and data that has its codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from linrec.backbones.config import ModelConfig
from linrec.data.dataset.context import ContextColumn, chosen_columns
from linrec.data.dataset.item_features import FIRST, Field
from linrec.data.dataset.sequences import concatenated_ranges
from linrec.data.dataset.splits import Split
from linrec.data.dataset.store import SequenceStore, named
from linrec.runs.config import AnyConfig
from linrec.types import InputError, argument


def with_context(
    store: SequenceStore, model: AnyConfig, split: Split, before: Sequence[Field] = ()
) -> SequenceStore:
    """The dataset as a model reads it, with vocabularies of the events that it is trained on.

    before: those of the run that a warm start begins with, whose values all stay.
    """
    names = model.context if isinstance(model, ModelConfig) else None
    if not names:
        return store
    old = {field.name: field for field in before}
    columns = chosen_columns(store.context, names, named(store))
    fields = [_field(column, split, old.get(column.name)) for column in columns]
    return store.read_by(fields)


def _field(column: ContextColumn, split: Split, before: Field | None) -> Field:
    train = split.train
    learned = column.learn(concatenated_ranges(train.starts, train.lengths))
    if before is not None:
        return _grown(learned, before)
    if learned.size == FIRST + (learned.kind == "numeric"):
        raise InputError(
            f"the context column {column.name!r} tells no training event from another (a category "
            f"counts if two events have it); leave it out of {argument('context')}"
        )
    return learned


def _grown(learned: Field, before: Field) -> Field:
    """The vocabulary of a run, with values that are new; buckets stay as they are."""
    if learned.kind != before.kind:
        raise InputError(
            f"the context column {learned.name!r} was {before.kind} in the run and is "
            f"{learned.kind} now; prepare the data with "
            f"{argument('context', f'{learned.name}={before.kind}')}"
        )
    new = tuple(value for value in learned.values if value not in before.values)
    return replace(before, values=before.values + new)
