"""What a model may be, and what it is before training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from linrec.backbones import BACKBONES, ModelConfig, build
from linrec.backbones.catalogue import completed
from linrec.data.dataset.item_features import ItemFeatures
from linrec.losses import full_softmax
from linrec.types import PAD, InputError
from tests.contracts.cases import (
    EVERY_BACKBONE,
    SMALL,
    hidden,
    history,
    plain_model,
    what_is_known,
)


def test_no_flag_means_no_limit() -> None:
    assert replace(SMALL, max_length=0).max_length is None


def test_features_may_come_as_text() -> None:
    assert replace(SMALL, features="genre, year,").features == ("genre", "year")


@pytest.mark.parametrize("backbone", ["sasrec", "bert4rec", "core"])
def test_what_was_left_open_is_filled_in(backbone: str) -> None:
    filled = completed(replace(SMALL, backbone=backbone))
    assert filled.objective == BACKBONES[backbone].objectives[0]
    assert filled.mask_ratio == (0.2 if backbone == "bert4rec" else None)
    assert filled.temperature == (0.07 if backbone == "core" else None)
    assert completed(filled) == filled


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"heads": 3}, "try --heads (2|4)"),
        ({"attention": "flash"}, "choose from softmax, linrec"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"positions": 0}, "positions must be at least 1"),
        ({"dropout": 1.0}, "below 1"),
        ({"max_length": -1}, "at least 1 or left out"),
        ({"features": " , "}, "features names none; give them as genre,year"),
        ({"mask_ratio": 1.0}, "mask_ratio must be at least 0 and below 1, not 1.0"),
        ({"mask_ratio": -0.1}, "mask_ratio must be at least 0"),
        ({"temperature": 0.0}, "temperature must be positive, not 0.0"),
        ({"temperature": float("nan")}, "temperature must be positive, not nan"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, object], remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        replace(SMALL, **changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"backbone": "gru"}, "unknown backbone 'gru'; choose from sasrec"),
        ({"objective": "cloze"}, "sasrec cannot be trained on cloze; choose --objective all-"),
        ({"features": "genre"}, "no use for features; leave --features out, or choose sasrecf or"),
        ({"temperature": 1.0}, "no use for temperature; leave --temperature out, or choose core"),
        ({"mask_ratio": 0.5}, "no use for mask_ratio; leave --mask-ratio out, or choose bert4rec"),
        (
            {"backbone": "bert4rec", "objective": "last-position", "mask_ratio": 0.5},
            "bert4rec trained on last-position has no use for mask_ratio; .* bert4rec on cloze$",
        ),
    ],
)
def test_what_the_backbone_has_no_use_for_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told) as refused:
        build(replace(SMALL, **changes), ItemFeatures.ids(3))
    assert "\n" not in str(refused.value)


@EVERY_BACKBONE
def test_weights_begin_gaussian_and_narrow(backbone: str) -> None:
    torch.manual_seed(0)
    config = ModelConfig(backbone=backbone)
    model = build(config, what_is_known(config))
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            assert (value == 0).all(), name
        elif value.numel() > 1_000 and not name.startswith("fuse"):
            assert value.std().item() == pytest.approx(0.02, rel=0.15), name


@pytest.mark.parametrize(("backbone", "name"), [("sasrecf", "fuse"), ("fdsa", "fuse_stacks")])
def test_a_fusion_begins_as_large_as_what_it_fuses(backbone: str, name: str) -> None:
    model = plain_model(backbone, "linrec-decay", width=64)
    fusion = getattr(model, name)
    fused = fusion(torch.randn(100, fusion.in_features))
    assert fused.std().item() == pytest.approx(1.0, rel=0.1)


@EVERY_BACKBONE
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_padding_vector_stays_zero(backbone: str, norm: str) -> None:
    model = plain_model(backbone, "linrec-decay", norm=norm)
    assert (model.item_vectors()[PAD] == 0).all()
    items = torch.cat([history(9), torch.full((1, 3), PAD)], 1)
    targets = items.roll(-1, 1).where(items != PAD, PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = full_softmax(hidden(model, items), model.item_vectors(), targets, model.item_bias())
        loss.backward()
        optimizer.step()
    assert (model.item_vectors()[PAD] == 0).all()
    assert all(value.isfinite().all() for value in model.parameters())
