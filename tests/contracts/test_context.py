"""The laws hold with context too: what is known of an event belongs to it and to no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from torch import Tensor

from linrec.backbones import BACKBONES, Backbone, build, model_config
from linrec.backbones.compiled import step_model
from linrec.backbones.prefixes import encode_prefixes
from linrec.data.dataset.gaps import gaps_of
from linrec.data.dataset.item_features import MISSING, NOTHING, UNKNOWN, Field
from linrec.data.dataset.sequences import Sequences
from linrec.types import PAD, InputError
from tests.contracts.cases import (
    CAUSAL_BACKBONES,
    CLOCK,
    EVERY_BACKBONE,
    EVERY_WAY,
    SMALL,
    WITH_AND_WITHOUT_TIME,
    close,
    history,
    sequences,
    times_of,
    what_is_known,
)

FIELDS = (
    Field("type", "categorical", values=("buy", "view")),
    Field("price", "numeric", bounds=(1.0, 5.0, 9.0)),
)
SIZES = [field.size for field in FIELDS]
STREAMED = pytest.mark.parametrize("attention", ["linrec-decay", "linear-transformer"])


def model(backbone: str, attention: str = "linrec-decay", **changes: Any) -> Backbone:
    torch.manual_seed(0)
    config = model_config(
        **SMALL | {"backbone": backbone, "attention": attention, "context": "type,price"} | changes
    )
    known = what_is_known(replace(config, context=None))
    made = build(config, replace(known, context=FIELDS)).eval().double()
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
                module.weight.mul_(20)
    return made


def context(length: int, seed: int = 0) -> Tensor:
    """[1, length, fields], all codes that a real event can have."""
    rng = np.random.default_rng([seed, length, 7])
    columns = [rng.integers(MISSING, size, (1, length)) for size in SIZES]
    return torch.from_numpy(np.stack(columns, -1))


def hidden(encoder: Backbone, items: Tensor, codes: Tensor | None) -> Tensor:
    keep = items != PAD
    gaps = gaps_of(times_of(items), keep, CLOCK[keep.sum(1)])
    return encoder(items, keep, *gaps, codes)


def with_codes(rows: Sequences, *codes: Tensor) -> Sequences:
    return replace(rows, context=torch.cat([x[0] for x in codes]).numpy().astype(np.int32))


@EVERY_WAY
def test_padding_changes_nothing(backbone: str, objective: str) -> None:
    encoder, items, codes = model(backbone, objective=objective), history(21), context(21)
    padded = torch.cat([items, torch.full((1, 9), PAD)], 1)
    more = torch.cat([codes, context(9, seed=5)], 1)
    close(hidden(encoder, padded, more)[:, :21], hidden(encoder, items, codes))


@EVERY_BACKBONE
def test_a_batch_is_its_rows(backbone: str) -> None:
    encoder, lengths = model(backbone), (1, 7, 30)
    rows, codes = [history(n) for n in lengths], [context(n) for n in lengths]
    together = encoder.encode(with_codes(sequences(*rows), *codes))
    alone = [
        encoder.encode(with_codes(sequences(row), code))
        for row, code in zip(rows, codes, strict=True)
    ]
    close(torch.cat(alone), together)


@CAUSAL_BACKBONES
def test_context_is_read_and_never_before_its_event(backbone: str) -> None:
    encoder, items, codes = model(backbone), history(20), context(20)
    for field in range(len(FIELDS)):
        changed = codes.clone()
        changed[0, 12, field] = MISSING + codes[0, 12, field] % (SIZES[field] - 1)
        before, after = hidden(encoder, items, codes), hidden(encoder, items, changed)
        close(after[:, :12], before[:, :12])
        assert (after[:, 12:] - before[:, 12:]).abs().amax(-1).gt(1e-9).all()


@CAUSAL_BACKBONES
def test_one_pass_encodes_every_prefix(backbone: str) -> None:
    encoder, items, codes = model(backbone, time_gaps=True), history(17), context(17)
    every = hidden(encoder, items, codes)[0]
    whole = with_codes(sequences(items), codes)
    ends = np.arange(1, 18)
    requests = np.array([float(CLOCK[end]) for end in ends])
    rows = replace(whole, starts=np.zeros(17, np.int64), ends=ends, until=requests)
    close(encoder.encode(rows), every)
    close(encode_prefixes(encoder, rows), every)


@WITH_AND_WITHOUT_TIME
@CAUSAL_BACKBONES
@STREAMED
@given(sizes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4))
@effort(max_examples=4)
def test_cut_anywhere_and_resumed_is_the_whole_history(
    backbone: str, attention: str, time_gaps: bool, sizes: list[tuple[int, int]]
) -> None:
    encoder = model(backbone, attention, time_gaps=time_gaps)
    items, codes = [history(16, s) for s in (0, 1)], [context(16, s) for s in (0, 1)]
    seen, state = [0, 0], encoder.start(2)
    for counts in sizes:
        now = torch.full((2, max(*counts, 1)), PAD)
        times = torch.zeros(now.shape, dtype=torch.float64)
        given_codes = torch.full((*now.shape, 2), NOTHING)
        for user, count in enumerate(counts):
            part = slice(seen[user], seen[user] + count)
            now[user, :count], times[user, :count] = items[user][0, part], CLOCK[part]
            given_codes[user, :count] = codes[user][0, part]
            seen[user] += count
        state = encoder.advance(now, state, times, given_codes)
    for user in (0, 1):
        if n := seen[user]:
            whole = with_codes(sequences(items[user][:, :n]), codes[user][:, :n])
            until = replace(whole, until=np.array([1e7]))
            close(encoder.request(state, 1e7)[user], encoder.encode(until)[0])


@CAUSAL_BACKBONES
def test_context_that_is_not_given_is_missing(backbone: str) -> None:
    encoder, items = model(backbone), history(9)
    missing = torch.full((1, 9, 2), MISSING)
    close(hidden(encoder, items, None), hidden(encoder, items, missing))
    start = encoder.start(1)
    without, given_one = (encoder.advance(items, start, None, x) for x in (None, missing))
    close(encoder.request(without), encoder.request(given_one))
    plain = sequences(items)
    close(encoder.encode(plain), encoder.encode(with_codes(plain, missing)))


def test_a_mask_of_bert4rec_hides_the_context_of_its_event() -> None:
    encoder = model("bert4rec")
    rows = with_codes(sequences(history(6)), context(6))
    read = encoder.read(rows)
    assert read.context is not None
    assert (read.context[read.items == encoder.mask_token] == NOTHING).all()
    assert (read.context[(read.items != encoder.mask_token) & read.keep] != NOTHING).all()


def test_states_of_models_with_context_are_advanced_by_torch() -> None:
    assert step_model(model("sasrec").float()) is None


def test_context_of_another_form_is_refused() -> None:
    encoder, items = model("sasrec"), history(3)
    with pytest.raises(InputError, match=r"\[users, events, fields\] = \[1, 3, 2\]"):
        encoder.advance(items, encoder.start(1), None, torch.ones(1, 3, 1, dtype=torch.int64))
    wrong = torch.full((1, 3, 2), 99)
    with pytest.raises(InputError, match="codes that the model's fields do not have"):
        encoder.advance(items, encoder.start(1), None, wrong)
    rows = replace(sequences(items), context=np.full((3, 1), UNKNOWN, np.int32))
    with pytest.raises(InputError, match="1 fields of context, and the model reads 2"):
        encoder.encode(rows)


def test_every_backbone_is_here() -> None:
    for backbone in BACKBONES:
        assert [field.name for field in model(backbone).context] == ["type", "price"]
