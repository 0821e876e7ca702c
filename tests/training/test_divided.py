"""The parts of a batch add up to the whole: loss and gradient, whatever is random in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from linrec.backbones import build
from linrec.data.dataset.batches import share_of
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.seen import SeenIndex
from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender
from linrec.runs.config import RunConfig
from linrec.training.context import with_context
from linrec.training.loop import epoch_batches, repeat_index
from linrec.training.step import Step
from linrec.training.workers import check_devices, check_divisible
from linrec.training.world import World
from linrec.types import InputError
from tests.training.cases import SMALL, cycle_with_context

CASES: list[dict[str, Any]] = [
    {},
    {"attention": "softmax", "max_length": 50},
    {"loss": "sampled-softmax", "negatives": 5},
    {"loss": "gbce", "negatives": 5},
    {"loss": "gbce", "negatives": 5, "seen_aware": True},
    {"seen_aware": True},
    {"seen": "keep", "repeat_head": "on"},
    {"seen": "keep", "repeat_head": "on", "loss": "gbce", "negatives": 5},
    {"loss": "sampled-softmax", "negatives": 5, "sparse_items": True},
    {"backbone": "bert4rec"},
    {"backbone": "core"},
    {"width": 12, "heads": 2},  # rows that begin in the middle of a block of draws
    {"batch_tokens": 8},  # fewer rows than workers
    {"weight": "price"},
    {"weight": "price", "loss": "sampled-softmax", "negatives": 5},
    {"weight": "price", "loss": "gbce", "negatives": 5},
    {"weight": "price", "batch_tokens": 8},  # parts of which all weights may be 0
    {"context": "type,price"},
    {"context": "type", "weight": "price", "backbone": "bert4rec"},
]


@pytest.fixture(scope="module")
def with_columns() -> SequenceStore:
    return cycle_with_context()


def gradients(step: Step) -> dict[str, Tensor]:
    found = {}
    for name, value in step.model.named_parameters():
        if value.grad is not None:
            found[name] = value.grad.to_dense() if value.grad.is_sparse else value.grad.clone()
            value.grad = None
    return found


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("changes", CASES, ids=str)
def test_parts_add_up_to_the_whole(
    with_columns: SequenceStore, changes: dict[str, Any], workers: int
) -> None:
    config: RunConfig = Recommender(**{**SMALL, "dropout": 0.4, **changes}).config
    store = with_context(with_columns, config.model, config.split.of(with_columns))
    split = config.split.of(store)
    torch.manual_seed(0)
    features = ItemFeatures.of(store.item_table, (), store.read_context)
    model = build(config.model, features)  # type: ignore[arg-type]
    step = Step(model, config, split.train.item_counts(store.n_items))
    step.module.train()
    seen = SeenIndex.of(split.train) if config.loss.seen_aware else None
    past = None if model.repeat is None else repeat_index(model, split)
    weight = config.training.weight
    weights = None if weight is None else store.weights(weight)
    batches = epoch_batches(model, split, config, 0).with_seen(seen, past, weights)
    torch.manual_seed(7)
    whole = step._whole_loss(step.transfer.send(batches[0]))
    whole.backward()
    expected = gradients(step)
    total = torch.zeros(())
    for worker in range(workers):
        sent = step.transfer.send(batches.divided(worker, workers)[0])
        assert sent.batch.part is not None
        torch.manual_seed(7)
        loss = step._part_of_loss(sent, sent.batch.part)
        total += loss.detach()
        if loss.requires_grad:
            loss.backward()
    assert torch.allclose(total, whole.detach(), rtol=1e-5)
    found = gradients(step)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert torch.allclose(gradient, expected[name], rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("lengths", [[], [5], [3, 3, 3], [1, 100, 1, 1], list(range(40))])
@pytest.mark.parametrize("workers", [1, 2, 7])
def test_every_row_has_one_worker(lengths: list[int], workers: int) -> None:
    shares = [share_of(np.array(lengths, int), worker, workers) for worker in range(workers)]
    rows = [row for share in shares for row in range(len(lengths))[share]]
    assert rows == list(range(len(lengths)))


def test_shares_are_even_in_events() -> None:
    lengths = np.arange(1, 101)
    shares = [int(lengths[share_of(lengths, worker, 4)].sum()) for worker in range(4)]
    assert max(shares) - min(shares) <= 100


def test_rows_of_a_holdout(store: SequenceStore) -> None:
    valid = Recommender().config.split.of(store).valid
    parts = [valid.rows(slice(0, 10)), valid.rows(slice(10, len(valid)))]
    assert np.array_equal(np.concatenate([part.targets for part in parts]), valid.targets)
    assert np.array_equal(np.concatenate([part.users for part in parts]), valid.users)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a number from 1 on, not 'two'"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, but RANK is not"),
        ({"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}, "but MASTER_ADDR is not set"),
        (
            {"WORLD_SIZE": "2", "RANK": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a",
             "MASTER_PORT": "1"},
            "RANK 2 and LOCAL_RANK 0 do not fit WORLD_SIZE 2",
        ),
        (
            {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0",
             "MASTER_ADDR": "a", "MASTER_PORT": "1"},
            "3 workers cannot be divided over machines of 2 each",
        ),
    ],
)  # fmt: skip
def test_environments_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], sentence: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=sentence):
        World.of_environment()


def test_what_cannot_be_divided() -> None:
    core = Recommender(**{**SMALL, "dropout": 0.2, "backbone": "core", "loss": "gbce"}).config
    with pytest.raises(InputError, match="core drops out the vectors of sampled items"):
        check_divisible(core)
    with pytest.raises(InputError, match="compiled steps draw dropout"):
        check_divisible(Recommender(**SMALL, compile=True).config)
    with pytest.raises(InputError, match="2 workers need a GPU each"):
        check_devices("mps", World(0, 2, 0, 2))
