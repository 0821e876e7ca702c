"""The capacity model says what was measured, where something was."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks import scale, scale_prepare
from benchmarks.capacity import ADAM, Constants, Size, items_per_gb, stages, table
from benchmarks.results import OUT_FOLDER
from linrec.backbones import ModelConfig, build
from linrec.data.dataset.item_features import ItemFeatures
from linrec.runs.config import parse
from linrec.training.optimizer import optimizers_of
from tests.training.cases import cycle


def read(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((OUT_FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def hours(size: Size, stage: str) -> float:
    return next(each.hours for each in stages(size, Constants.read()) if stage in each.name)


def test_recommending_takes_about_as_long_as_it_was_measured() -> None:
    """The constants are of the model alone; the command also starts, looks up and writes."""
    score = read("scale")["recommend"]
    assert isinstance(score, dict)
    measured = score["rows"][0]
    assert measured["way"] == "one process"
    predicted = 3600 * hours(Size(score["events"], score["users"], score["items"]), "recommend")
    assert 0.4 < predicted / measured["seconds"] < 1.1


def test_preparing_a_hundred_million_events_follows_from_ten_million() -> None:
    rows = read("prepare")["rows"]
    assert isinstance(rows, list)
    ten, hundred = sorted(rows, key=lambda row: row["events"])[:2]
    small = replace(Constants.read(), prepare_seconds=1 / ten["events_a_second"])
    predicted = stages(Size(hundred["events"], 1, 1), small)[1].hours * 3600
    assert predicted == pytest.approx(hundred["seconds"], rel=0.35)


def test_data_has_the_bytes_that_are_said() -> None:
    store = cycle()
    held = store.items.nbytes + store.times.nbytes + store.offsets.nbytes
    size = Size(store.n_events, store.n_users, store.n_items)
    assert stages(size, Constants.read())[1].disk == held - 8  # the end of the last user


def test_a_table_in_training_has_the_bytes_that_are_said() -> None:
    items, width = 10_000, 32
    model = build(ModelConfig(width=width, heads=2), ItemFeatures.ids(items))
    weight = model.item.weight
    (optimizer,) = optimizers_of(model, parse({}).training)
    weight.grad = weight.detach().clone()
    optimizer.step()
    state = optimizer.state[weight]
    held = [weight, weight.grad, state["exp_avg"], state["exp_avg_sq"]]
    assert sum(each.nbytes for each in held) == ADAM * weight.numel()
    assert abs(items_per_gb(width, sparse=False) * ADAM * width - 1e9) < ADAM * width


def test_no_figure_on_the_page_was_typed_in() -> None:
    page = scale_prepare.PAGE.read_text("utf-8")
    assert table(Size(10**10, 10**8, 10**7), Constants.read()) in page
    assert scale.tables() in page
    assert scale_prepare.rendered(page) == page
