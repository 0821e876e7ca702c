"""SASRec's laws, for every mechanism: what a user is must not depend on how it was batched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from linrec import ops
from linrec.backbones import Backbone, ModelConfig, build
from linrec.data.sequences import Sequences
from linrec.losses import full_softmax
from linrec.types import PAD, InputError

SMALL = ModelConfig(width=8, heads=2, layers=2, inner=16, positions=16, dropout=0.2)
N_ITEMS = 30

EVERY_MECHANISM = pytest.mark.parametrize("attention", list(ops.MECHANISMS))
EITHER_OBJECTIVE = pytest.mark.parametrize("objective", ["all-positions", "last-position"])


def model(seed: int = 0, **changes) -> Backbone:
    torch.manual_seed(seed)
    made = build(replace(SMALL, **changes), N_ITEMS).eval().double()
    # the narrow initial Gaussian would hide differences between events
    with torch.no_grad():
        for parameter in made.blocks.parameters():
            if parameter.dim() > 1:
                parameter.mul_(20)
    return made


def history(length: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng([seed, length])
    return torch.from_numpy(rng.integers(1, N_ITEMS + 1, (1, length)))


def hidden(backbone: Backbone, items: Tensor) -> Tensor:
    return backbone(items, items != PAD)


def histories(*lengths: int) -> Sequences:
    return Sequences.of([history(length)[0].numpy().astype(np.int32) for length in lengths])


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@EITHER_OBJECTIVE
@EVERY_MECHANISM
def test_padding_changes_nothing(attention, objective) -> None:
    backbone = model(attention=attention, objective=objective)
    items = history(21)
    padded = torch.cat([items, torch.full((1, 50), PAD)], 1)
    close(hidden(backbone, padded)[:, :21], hidden(backbone, items))


@EITHER_OBJECTIVE
@EVERY_MECHANISM
def test_a_batch_is_its_rows(attention, objective) -> None:
    backbone = model(attention=attention, objective=objective)
    lengths = (1, 2, 7, 40, 19)
    together = backbone.encode(histories(*lengths))
    assert together.shape == (5, 8)
    for row, length in enumerate(lengths):
        close(backbone.encode(histories(length))[0], together[row])


@EVERY_MECHANISM
def test_all_positions_are_causal(attention) -> None:
    backbone = model(attention=attention)
    items = history(40)
    changed = torch.cat([items[:, :25], history(40, seed=1)[:, 25:]], 1)
    close(hidden(backbone, changed)[:, :25], hidden(backbone, items)[:, :25])
    assert not torch.allclose(hidden(backbone, changed)[:, 25:], hidden(backbone, items)[:, 25:])


@EVERY_MECHANISM
def test_one_pass_encodes_every_prefix(attention) -> None:
    """Why all positions can be trained at once: each is what serving would compute."""
    backbone = model(attention=attention)
    every = hidden(backbone, history(33))[0]
    for now in (1, 2, 17, 33):
        prefix = Sequences.of([history(33)[0, :now].numpy().astype(np.int32)])
        close(backbone.encode(prefix)[0], every[now - 1])


@EVERY_MECHANISM
def test_last_position_is_bidirectional(attention) -> None:
    backbone = model(attention=attention, objective="last-position")
    items = history(20)
    changed = items.clone()
    changed[0, -1] = items[0, -1] % N_ITEMS + 1
    first, other = (hidden(backbone, x)[0, 0] for x in (items, changed))
    assert not torch.allclose(first, other)
    close(backbone.encode(histories(20))[0], hidden(backbone, items)[0, -1])


def test_max_length_forgets_what_is_older() -> None:
    whole, cut = model(max_length=None), model(max_length=10)
    recent = Sequences.of([history(40)[0, -10:].numpy().astype(np.int32)])
    close(cut.encode(histories(40)), whole.encode(recent))
    assert not torch.allclose(whole.encode(histories(40)), whole.encode(recent))


def test_no_flag_means_no_limit() -> None:
    assert replace(SMALL, max_length=0).max_length is None


def test_a_history_longer_than_the_positions_is_encoded() -> None:
    assert model().encode(histories(3_000)).isfinite().all()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_padding_vector_stays_zero(norm) -> None:
    torch.manual_seed(0)
    backbone = build(replace(SMALL, norm=norm), N_ITEMS)
    assert (backbone.item_vectors()[PAD] == 0).all()
    items = torch.cat([history(9), torch.full((1, 3), PAD)], 1)
    targets = items.roll(-1, 1).where(items != PAD, PAD)
    optimizer = torch.optim.Adam(backbone.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        full_softmax(hidden(backbone, items), backbone.item_vectors(), targets).backward()
        optimizer.step()
    assert (backbone.item_vectors()[PAD] == 0).all()
    assert all(p.isfinite().all() for p in backbone.parameters())
    assert all(p.grad is not None for p in backbone.parameters())


@EVERY_MECHANISM
def test_it_learns_a_cycle(attention) -> None:
    """After item i comes i + 1: the last item tells, and every mechanism finds that out."""
    torch.manual_seed(0)
    backbone = build(replace(SMALL, attention=attention, dropout=0.0, layers=1, width=16), 10)
    items = 1 + (torch.arange(10)[:, None] + torch.arange(13)) % 10
    optimizer = torch.optim.Adam(backbone.parameters(), lr=0.03)
    for _ in range(30):
        optimizer.zero_grad()
        loss = full_softmax(hidden(backbone, items[:, :-1]), backbone.item_vectors(), items[:, 1:])
        loss.backward()
        optimizer.step()
    assert loss < 0.3  # log 10 = 2.3 knows nothing


def test_the_same_seed_gives_the_same_model() -> None:
    weights, same, other = (model(seed).state_dict() for seed in (1, 1, 2))
    for name, value in weights.items():
        assert torch.equal(value, same[name])
    assert any(not torch.equal(value, other[name]) for name, value in weights.items())


def test_weights_begin_gaussian_and_narrow() -> None:
    torch.manual_seed(0)
    backbone = build(ModelConfig(), 500)
    assert backbone.item_vectors()[1:].std().item() == pytest.approx(0.02, rel=0.05)
    assert (backbone.blocks[0].attention.project_in.bias == 0).all()


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"heads": 3}, "try --heads (2|4)"),
        ({"attention": "flash"}, "choose from softmax, linrec"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"positions": 0}, "positions must be at least 1"),
        ({"dropout": 1.0}, "below 1"),
        ({"max_length": -1}, "at least 1 or left out"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, remedy) -> None:
    with pytest.raises(InputError, match=remedy):
        replace(SMALL, **changes)


def test_an_unknown_backbone_is_refused() -> None:
    with pytest.raises(InputError, match="choose from sasrec"):
        build(replace(SMALL, backbone="gru"), N_ITEMS)
