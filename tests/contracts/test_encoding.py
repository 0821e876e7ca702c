"""What a user is must not depend on how it was batched, nor on a future it was not to see."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from linrec.types import PAD
from tests.contracts.cases import (
    BOTH_WAYS,
    CAUSAL_BACKBONES,
    EVERY_ATTENTION,
    EVERY_BACKBONE,
    EVERY_BLOCK,
    EVERY_WAY,
    N_ITEMS,
    SMALL,
    WITH_AND_WITHOUT_TIME,
    close,
    hidden,
    history,
    model,
    plain_model,
    sequences,
)

LENGTHS = (1, 7, 40, 19)


@EVERY_BLOCK
@EVERY_WAY
@EVERY_ATTENTION
def test_padding_changes_nothing(
    backbone: str, objective: str, attention: str, block: dict[str, Any]
) -> None:
    encoder = model(backbone, attention, objective=objective, **block)
    items = history(21)
    padded = torch.cat([items, torch.full((1, 50), PAD)], 1)
    close(hidden(encoder, padded)[:, :21], hidden(encoder, items))


@EVERY_BLOCK
@EVERY_WAY
@EVERY_ATTENTION
def test_a_batch_is_its_rows_in_any_order(
    backbone: str, objective: str, attention: str, block: dict[str, Any]
) -> None:
    encoder = model(backbone, attention, objective=objective, **block)
    rows = [history(length) for length in LENGTHS]
    together = encoder.encode(sequences(*rows))
    assert together.shape == (4, SMALL["width"])
    assert not torch.allclose(together[0], together[1])
    close(torch.cat([encoder.encode(sequences(row)) for row in rows]), together)
    close(encoder.encode(sequences(*rows[::-1])), together.flip(0))


@EVERY_BLOCK
@CAUSAL_BACKBONES
@EVERY_ATTENTION
def test_all_positions_are_causal(backbone: str, attention: str, block: dict[str, Any]) -> None:
    encoder = model(backbone, attention, **block)
    items = history(40)
    changed = torch.cat([items[:, :25], history(40, seed=1)[:, 25:]], 1)
    before, after = hidden(encoder, items), hidden(encoder, changed)
    close(after[:, :25], before[:, :25])
    assert not torch.allclose(after[:, 25:], before[:, 25:])


@EVERY_BLOCK
@CAUSAL_BACKBONES
@EVERY_ATTENTION
def test_one_pass_encodes_every_prefix(
    backbone: str, attention: str, block: dict[str, Any]
) -> None:
    """Why all positions can be trained at once: each is what serving would compute."""
    encoder = model(backbone, attention, **block)
    items = history(33)
    every = hidden(encoder, items)[0]
    for now in (1, 2, 17, 33):
        close(encoder.encode(sequences(items[:, :now]))[0], every[now - 1])


@BOTH_WAYS
@EVERY_ATTENTION
@WITH_AND_WITHOUT_TIME
def test_what_is_not_causal_reads_both_ways(
    backbone: str, objective: str, attention: str, time_gaps: bool
) -> None:
    encoder = model(backbone, attention, objective=objective, time_gaps=time_gaps)
    items = history(20)
    changed = items.clone()
    changed[0, -1] = items[0, -1] % N_ITEMS + 1
    before, after = (hidden(encoder, x)[:, :-1] for x in (items, changed))
    assert not torch.allclose(before, after)


@EVERY_WAY
@EVERY_ATTENTION
@WITH_AND_WITHOUT_TIME
def test_the_oldest_event_is_not_forgotten(
    backbone: str, objective: str, attention: str, time_gaps: bool
) -> None:
    encoder = model(backbone, attention, objective=objective, time_gaps=time_gaps)
    items = history(20)
    changed = items.clone()
    changed[0, 0] = items[0, 0] % N_ITEMS + 1
    before, after = (encoder.encode(sequences(x)) for x in (items, changed))
    assert not torch.allclose(before, after)


@EVERY_WAY
@EVERY_ATTENTION
@WITH_AND_WITHOUT_TIME
def test_max_length_forgets_what_is_older(
    backbone: str, objective: str, attention: str, time_gaps: bool
) -> None:
    whole = model(backbone, attention, objective=objective, time_gaps=time_gaps)
    cut = model(backbone, attention, objective=objective, max_length=10, time_gaps=time_gaps)
    items = history(40)
    recent = whole.encode(sequences(items[:, -10:], start=30))
    close(cut.encode(sequences(items)), recent)
    assert not torch.allclose(whole.encode(sequences(items)), recent)


@EVERY_BACKBONE
@EVERY_ATTENTION
@WITH_AND_WITHOUT_TIME
def test_a_history_longer_than_the_positions_is_encoded(
    backbone: str, attention: str, time_gaps: bool
) -> None:
    assert (
        model(backbone, attention, time_gaps=time_gaps)
        .encode(sequences(history(1_000)))
        .isfinite()
        .all()
    )


@EVERY_BACKBONE
@EVERY_ATTENTION
def test_the_same_seed_gives_the_same_model(backbone: str, attention: str) -> None:
    first, same, other = (
        plain_model(backbone, attention, seed=seed).state_dict() for seed in (1, 1, 2)
    )
    for name, value in first.items():
        assert torch.equal(value, same[name])
    assert not torch.equal(first["item.weight"], other["item.weight"])


@pytest.mark.parametrize("length", [0, 1])
@EVERY_WAY
def test_next_to_no_history_is_a_history(backbone: str, objective: str, length: int) -> None:
    encoder = model(backbone, "linrec-decay", objective=objective)
    assert encoder.encode(sequences(history(length))).isfinite().all()
