"""What a model may be, and what it is before training."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch

from linrec.backbones import BACKBONES, ModelConfig, build, model_config
from linrec.backbones.catalogue import configs
from linrec.backbones.config import CONFIGS, FDSAConfig
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
    assert ModelConfig(max_length=0).max_length is None


def test_features_may_come_as_text() -> None:
    assert FDSAConfig(features="genre, year,").features == ("genre", "year")


def test_the_flags_are_made_from_the_settings_of_the_backbones() -> None:
    assert configs() == CONFIGS


@pytest.mark.parametrize("backbone", ["sasrec", "bert4rec", "core"])
def test_settings_are_complete_from_the_start(backbone: str) -> None:
    config = model_config(**SMALL | {"backbone": backbone})
    assert config.objective == BACKBONES[backbone].Config.objectives[0]
    assert getattr(config, "mask_ratio", None) == (0.2 if backbone == "bert4rec" else None)
    assert getattr(config, "temperature", None) == (0.07 if backbone == "core" else None)
    assert model_config(**asdict(config)) == config


def test_none_stands_for_the_default() -> None:
    """Older runs recorded it for the settings of other backbones."""
    assert model_config(width=None, mask_ratio=None) == ModelConfig()


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"heads": 3}, "try heads=(2|4)"),
        ({"attention": "flash"}, "choose from softmax, linrec"),
        ({"layers": 0}, "layers=0 must be at least 1"),
        ({"positions": 0}, "positions=0 must be at least 1"),
        ({"dropout": 1.0}, "below 1"),
        ({"max_length": -1}, "max_length=-1 must be at least 1"),
        ({"backbone": "fdsa", "features": " , "}, "features names none; give them as genre,year"),
        (
            {"backbone": "bert4rec", "mask_ratio": 1.0},
            "mask_ratio=1.0 must be at least 0 and below 1",
        ),
        ({"backbone": "bert4rec", "mask_ratio": -0.1}, "mask_ratio=-0.1 must be at least 0"),
        ({"backbone": "core", "temperature": 0.0}, "temperature=0.0 must be positive"),
        (
            {"backbone": "core", "temperature": float("nan")},
            "temperature=nan must be positive",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        model_config(**SMALL | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone": "gru"}, "unknown backbone 'gru'; choose from sasrec"),
        ({"objective": "cloze"}, "sasrec cannot be trained on cloze; choose objective=all-"),
        (
            {"features": "genre"},
            "no use for features; leave features= out, or choose backbone=sasrecf or b",
        ),
        (
            {"temperature": 1.0},
            "no use for temperature; leave temperature= out, or choose backbone=core$",
        ),
        (
            {"mask_ratio": 0.5},
            "no use for mask_ratio; leave mask_ratio= out, or choose backbone=bert4rec$",
        ),
        (
            {"backbone": "bert4rec", "objective": "last-position", "mask_ratio": 0.5},
            "bert4rec trained on last-position has no use for mask_ratio; .* objective=cloze$",
        ),
    ],
)
def test_what_the_backbone_has_no_use_for_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        build(model_config(**SMALL | changes), ItemFeatures.ids(3))
    assert "\n" not in str(refused.value)


@EVERY_BACKBONE
def test_weights_begin_gaussian_and_narrow(backbone: str) -> None:
    torch.manual_seed(0)
    config = model_config(backbone=backbone)
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
