"""Adam is fused: one kernel updates all parameters, on a GPU without a launch for each."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from linrec.recommender import Recommender
from linrec.training.optimizer import optimizers_of
from tests.training.cases import SMALL, cycle


@pytest.fixture(scope="module")
def trained() -> Recommender:
    return Recommender(**SMALL | {"epochs": 1}).fit(cycle())


@pytest.mark.parametrize("sparse", [False, True])
def test_adam_is_fused(trained: Recommender, sparse: bool) -> None:
    training = replace(trained.config.training, sparse_items=sparse)
    first, *others = optimizers_of(deepcopy(trained.model), training)
    assert first.defaults["fused"]
    assert [type(each) for each in others] == [torch.optim.SparseAdam] * sparse


def test_it_gives_what_the_plain_form_gives(trained: Recommender) -> None:
    model, twin = deepcopy(trained.model), deepcopy(trained.model)
    (fused,) = optimizers_of(model, trained.config.training)
    options = {name: fused.defaults[name] for name in ("lr", "weight_decay")}
    plain = torch.optim.Adam(twin.parameters(), **options, fused=False, foreach=False)
    rng = torch.Generator().manual_seed(0)
    for _ in range(3):
        for ours, other in zip(model.parameters(), twin.parameters(), strict=True):
            ours.grad = torch.randn(ours.shape, generator=rng)
            other.grad = ours.grad.clone()
        fused.step()
        plain.step()
    for ours, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, other)
