"""SASRecF and FDSA: what is known of an item changes how it is read."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import torch
from torch import Tensor, nn

from linrec.backbones import Backbone, build, model_config
from linrec.data.dataset.feature import Feature
from linrec.data.dataset.item_features import ItemFeatures, choose_fields
from linrec.data.preparing.prepare import prepare
from linrec.recommender import Recommender, load
from linrec.training.callbacks import Callback
from tests.contracts.cases import SMALL, close, cycle, hidden
from tests.training import cases
from tests.training.cases import cycle_events

TABLE = pl.DataFrame(
    {
        "item": ["a", "b", "c", "d", "e", "f"],
        "genre": ["war", "war", "art", "art", None, "odd"],
        "tags": [["x", "y"], ["x", "y"], ["y"], ["x"], [], ["x"]],
        "year": [1990.0, 1990.0, 1995.0, 2000.0, None, 2005.0],
    }
)
FEATURES = [Feature("genre", "categorical"), Feature("tags", "multi"), Feature("year", "numeric")]
FIELDS = choose_fields(TABLE, FEATURES, None)
A, B, C, D, E, ODD = torch.arange(1, 7)

BOTH = pytest.mark.parametrize("backbone", ["sasrecf", "fdsa"])


def with_features(backbone: str, table: pl.DataFrame = TABLE, **changes: object) -> Backbone:
    """Large weights, and one vector for all items: only their features tell them apart."""
    torch.manual_seed(0)
    features = ItemFeatures.of(table, FIELDS)
    made = build(model_config(**SMALL | {"backbone": backbone} | changes), features).eval().double()
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.Linear):
                module.weight.mul_(20)
        made.item.weight[1:] = made.item.weight[1]
    return made


def read(model: Backbone, *items: Tensor) -> Tensor:
    return hidden(model, torch.stack(items)[None])[0, -1]


@BOTH
@pytest.mark.parametrize(
    ("name", "value"), [("genre", "art"), ("tags", ["y"]), ("year", 2005.0), ("year", None)]
)
def test_each_feature_of_an_item_changes_how_it_is_read(backbone: str, name: str, value) -> None:
    column = TABLE[name].to_list()
    column[0] = value
    changed = TABLE.with_columns(pl.Series(name, column, dtype=TABLE[name].dtype))
    one, other = with_features(backbone), with_features(backbone, changed)
    assert not torch.allclose(read(one, C, A), read(other, C, A))
    close(read(one, C, D), read(other, C, D))


@BOTH
def test_items_with_the_same_features_are_alike_but_for_their_own_vector(backbone: str) -> None:
    model = with_features(backbone)
    close(read(model, C, A), read(model, C, B))
    assert not torch.allclose(read(model, C, A), read(model, C, D))
    with torch.no_grad():
        model.item.weight[B, :3] += 0.1
    assert not torch.allclose(read(model, C, A), read(model, C, B))


@BOTH
def test_missing_and_unknown_are_values_of_their_own(backbone: str) -> None:
    """E has no genre, and the one of ODD is too rare to be in the vocabulary."""
    genre = choose_fields(TABLE, FEATURES, ["genre"])
    torch.manual_seed(0)
    features = ItemFeatures.of(TABLE, genre)
    model = build(model_config(**SMALL | {"backbone": backbone}), features).double().eval()
    with torch.no_grad():
        model.item.weight[1:] = model.item.weight[1]
    found = [read(model, item) for item in (A, C, E, ODD)]
    for place, one in enumerate(found):
        for other in found[place + 1 :]:
            assert not torch.allclose(one, other)


@BOTH
def test_features_are_read_but_items_are_the_answer(backbone: str) -> None:
    model = with_features(backbone)
    assert model.item_vectors() is model.item.weight


@BOTH
def test_features_are_no_part_of_the_weights(backbone: str) -> None:
    """They are made again from the items that the run carries along."""
    assert not [name for name in with_features(backbone).state_dict() if "codes" in name]


def test_sasrecf_fuses_before_the_stack_and_fdsa_behind_two() -> None:
    fused, twice = with_features("sasrecf"), with_features("fdsa")
    assert fused.fuse.in_features == (1 + len(FIELDS)) * SMALL["width"]
    assert twice.fuse_stacks.in_features == 2 * SMALL["width"]
    assert len(twice.memories()) == 2


def fitted(**changes: object) -> Recommender:
    return Recommender(**cases.SMALL | {"backbone": "sasrecf", "epochs": 1} | changes).fit(cycle())


def test_a_run_that_is_loaded_and_fitted_again_reads_the_same(tmp_path: Path) -> None:
    fitted(features=["genre"]).save(tmp_path / "run")
    again = load(tmp_path / "run").fit(cycle())
    assert again.config.model.features == ("genre",)


def test_a_second_training_may_read_other_data() -> None:
    model = fitted()
    assert model.config.model.features == ("genre", "tags", "year")
    with pytest.warns(UserWarning, match=r"sasrecf takes the item's own id .*linrec prepare"):
        model.fit(cycle_events())
    assert model.config.model.features == ("item",)


def test_a_training_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    class Broken(Callback):
        def on_batch_end(self, loss: float, targets: int) -> None:
            del loss, targets
            raise RuntimeError("no power")

    model = fitted()
    before = model.recommend([["i01", "i02"]], k=5).table
    with pytest.raises(RuntimeError, match="no power"):
        model.fit(prepare(cycle_events(seed=3)), callbacks=[Broken()])
    assert model.config.model.features == ("genre", "tags", "year")
    model.save(tmp_path / "run")
    assert load(tmp_path / "run").recommend([["i01", "i02"]], k=5).table.equals(before)
