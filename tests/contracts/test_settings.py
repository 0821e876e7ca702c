"""A setting does something in every backbone, or the backbone refuses it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from linrec.backbones import BACKBONES, build, model_config
from linrec.backbones.config import CONFIGS
from linrec.data.dataset.splits import leave_one_out
from linrec.losses import full_softmax
from linrec.runs.config import RunConfig
from linrec.settings import settings_of
from linrec.training.loop import epoch_batches
from linrec.types import InputError
from tests.contracts.cases import (
    EVERY_BACKBONE,
    EVERY_WAY,
    SMALL,
    cycle,
    history,
    sequences,
    what_is_known,
)

OTHER: dict[str, Any] = {
    "backbone": None,  # the next of the catalogue
    "attention": "softmax",
    "objective": "last-position",
    "features": ("genre", "year"),
    "context": ("type",),
    "mask_ratio": 0.7,
    "temperature": 0.5,
    "width": 16,
    "heads": 1,
    "layers": 1,
    "inner": 8,
    "dropout": 0.5,
    "norm": "pre",
    "head_norm": True,
    "gate": True,
    "positions": 4,
    "max_length": 3,
    "time_gaps": True,
    "repeat_head": "on",
    "item_vectors": "on",
    "id_dropout": 0.7,
}


def test_no_setting_is_left_out_here() -> None:
    assert OTHER.keys() == {name for config in CONFIGS.values() for name in settings_of(config)}


class Behaviour(NamedTuple):
    """Everything that a user of the model could notice."""

    shapes: dict[str, torch.Size]
    batches: list[Tensor]
    loss: Tensor
    encoded: Tensor

    def differs_from(self, other: Behaviour) -> bool:
        if self.shapes != other.shapes or len(self.batches) != len(other.batches):
            return True
        mine, theirs = [*self.batches, *self[2:]], [*other.batches, *other[2:]]
        return any(not torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def behaviour(backbone: str, **changes: Any) -> Behaviour:
    torch.manual_seed(0)
    chosen = model_config(**SMALL | {"backbone": backbone} | changes)
    model = build(chosen, what_is_known(chosen))
    shapes = {name: value.shape for name, value in model.named_parameters()}
    split = leave_one_out(cycle().sequences())
    batches = list(epoch_batches(model, split, RunConfig(model=chosen), epoch=0))
    first = batches[0]
    torch.manual_seed(0)
    hidden = model.train()(*first.events)
    loss = full_softmax(hidden, model.item_vectors(), first.targets, model.item_bias())
    encoded = model.eval().encode(sequences(history(4), history(12)))
    return Behaviour(shapes, [batch.items for batch in batches], loss.detach(), encoded)


@EVERY_BACKBONE
def test_the_same_settings_behave_the_same(backbone: str) -> None:
    assert not behaviour(backbone).differs_from(behaviour(backbone))


@EVERY_BACKBONE
@pytest.mark.parametrize("name", [name for name in OTHER if name != "backbone"])
def test_a_setting_matters_or_is_refused(backbone: str, name: str) -> None:
    change, before = {name: OTHER[name]}, {}
    if name == "id_dropout":  # which only a model with item vectors has a use for
        before = {"item_vectors": "on"}
    if name not in settings_of(BACKBONES[backbone].Config):
        with pytest.raises(InputError, match=f"{backbone} has no use for {name}; leave {name}= "):
            behaviour(backbone, **change)
    elif name == "repeat_head" and not model_config(backbone=backbone).causal:
        with pytest.raises(InputError, match="repeat_head=on needs a causal model"):
            behaviour(backbone, **change)
    else:
        assert behaviour(backbone, **before, **change).differs_from(behaviour(backbone, **before))


@EVERY_BACKBONE
def test_a_backbone_is_not_another(backbone: str) -> None:
    names = list(BACKBONES)
    following = names[(names.index(backbone) + 1) % len(names)]
    assert behaviour(following).differs_from(behaviour(backbone))


@EVERY_WAY
def test_an_objective_is_an_objective_of_its_own(backbone: str, objective: str) -> None:
    others = set(BACKBONES[backbone].Config.objectives) - {objective}
    mine = behaviour(backbone, objective=objective)
    assert others
    for other in others:
        assert mine.differs_from(behaviour(backbone, objective=other))


@EVERY_BACKBONE
def test_an_objective_it_cannot_be_trained_on_is_refused(backbone: str) -> None:
    able = BACKBONES[backbone].Config.objectives
    for objective in {"all-positions", "last-position", "cloze"} - set(able):
        with pytest.raises(InputError, match=f"cannot be trained on {objective}; choose objec"):
            model_config(backbone=backbone, objective=objective)
