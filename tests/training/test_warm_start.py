"""A training that starts from another run: names decide which row is whose."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from linrec.backbones import BACKBONES, Backbone, build, model_config
from linrec.data.dataset.item_features import FIRST, UNKNOWN, Field, ItemFeatures
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.evaluation.scorer import model_scorer
from linrec.recommender import Recommender, load
from linrec.runs.warm_settings import EPOCHS
from linrec.training import loop
from linrec.training.callbacks import Callback
from linrec.types import InputError
from tests.cli.conftest import Command, Refused, linrec, refused
from tests.training.cases import N_ITEMS, SMALL, cycle_events, digest, flags_of

__all__ = ["linrec", "refused"]

EVERY_BACKBONE = pytest.mark.parametrize("backbone", list(BACKBONES))
KINDS = {"genre": "categorical", "tags": "multi", "year": "numeric"}
NEW, GONE = ("n90", "n91"), "i15"


def features(genres: str) -> pl.DataFrame:
    ids = [*(f"i{index:02d}" for index in range(N_ITEMS)), *NEW]
    return pl.DataFrame(
        {
            "item": ids,
            "genre": [genres[index % len(genres)] for index in range(len(ids))],
            "tags": [list("xyz"[: index % 4]) for index in range(len(ids))],
            "year": [1990.0 + index for index in range(len(ids))],
        }
    )


@cache
def monday() -> SequenceStore:
    return prepare(cycle_events(), items=features("abc")[:N_ITEMS], feature_kinds=KINDS)


@cache
def tuesday() -> SequenceStore:
    """Without item i15 and genre c; with two new items, a new genre and other numbers of items."""
    log = cycle_events(users=64, seed=1).filter(pl.col("item") != GONE)
    rows = [(user, item, 99) for user in range(100, 110) for item in (*NEW, "i00", *NEW)]
    more = pl.DataFrame(rows, schema=log.schema, orient="row")
    table = features("abc").with_columns(
        genre=pl.when(pl.col("genre") == "c").then(pl.lit("d")).otherwise("genre")
    )
    return prepare(pl.concat([more, log]), items=table, feature_kinds=KINDS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    base = tmp_path_factory.mktemp("monday")

    @cache
    def run(backbone: str) -> Path:
        Recommender(**SMALL | {"backbone": backbone, "epochs": 2}).fit(monday(), base / backbone)
        return base / backbone

    return run


def started(run: Path, **changes: Any) -> Recommender:
    """A warm start whose steps change nothing that a test could notice."""
    settings = {"epochs": 1, "learning_rate": 1e-30} | changes
    return Recommender(start=run, **settings).fit(tuesday())


@EVERY_BACKBONE
def test_per_item_names_the_tensors_that_grow_with_the_items(backbone: str) -> None:
    config = model_config(backbone=backbone)
    sizes = [
        {
            name: value.shape
            for name, value in build(config, ItemFeatures(count)).state_dict().items()
        }
        for count in (5, 6)
    ]
    grown = {name for name in sizes[0] if sizes[0][name] != sizes[1][name]}
    assert grown == set(BACKBONES[backbone].per_item)


@EVERY_BACKBONE
def test_histories_of_old_items_score_old_items_as_before(
    runs: Callable[[str], Path], backbone: str
) -> None:
    before, after = load(runs(backbone)), started(runs(backbone))
    names = [["i00", "i03", "i07"], ["i14"], ["i02", "i01"]]
    scores = []
    for found in (before, after):
        rows = [found.catalogue.ids.index_of(row).tolist() for row in names]
        with torch.inference_mode():
            every = model_scorer(found.model)(Sequences.of(rows))
        old = [f"i{index:02d}" for index in range(N_ITEMS - 1)]
        scores.append(every[:, found.catalogue.ids.index_of(old)])
    # genre c is gone and d is new: items of d are read as unknown, which c was not
    if backbone in ("sasrec", "bert4rec", "core"):
        torch.testing.assert_close(scores[0], scores[1])
    assert not torch.equal(before.model.item.weight[1], before.model.item.weight[2])


@EVERY_BACKBONE
def test_a_new_item_is_near_the_mean_of_the_old(runs: Callable[[str], Path], backbone: str) -> None:
    before, after = load(runs(backbone)), started(runs(backbone))
    old = before.catalogue.ids.index_of([f"i{index:02d}" for index in range(N_ITEMS - 1)])
    mean = before.model.item.weight[old].mean(0)
    for name in NEW:
        row = after.model.item.weight[int(after.catalogue.ids.index_of([name])[0])]
        assert 0 < (row - mean).abs().max() < 0.1
    if backbone == "bert4rec":
        last = (before.model.item.weight[-1], after.model.item.weight[-1])
        assert torch.equal(*last)  # the mask


@pytest.mark.parametrize("backbone", ["sasrecf", "fdsa"])
def test_values_are_matched_by_name(runs: Callable[[str], Path], backbone: str) -> None:
    before, after = load(runs(backbone)), started(runs(backbone))

    def fields(found: Recommender) -> dict[str, tuple[Field, torch.Tensor]]:
        assert isinstance(found.model, Backbone)
        parts = found.model.get_submodule("features").get_submodule("fields").children()
        return {part.field.name: (part.field, part.value.weight) for part in parts}  # type: ignore[union-attr]

    old, new = fields(before), fields(after)
    assert old["genre"][0].values == ("a", "b", "c")
    assert new["genre"][0].values == ("a", "b", "d")
    for index in (0, 1):
        assert torch.equal(new["genre"][1][FIRST + index], old["genre"][1][FIRST + index])
    assert torch.equal(new["genre"][1][FIRST + 2], old["genre"][1][UNKNOWN])
    assert new["year"][0].bounds == old["year"][0].bounds  # though there are later years now
    assert torch.equal(new["year"][1], old["year"][1])
    changes = after.description.start["changes"]  # type: ignore[index]
    assert changes["items"] == {"old": 15, "new": 2, "gone": 1}
    assert changes["values of genre"] == {"old": 2, "new": 1, "gone": 1}


def test_a_feature_that_is_the_id_is_matched_by_item(tmp_path: Path) -> None:
    settings = SMALL | {"backbone": "sasrecf", "features": "item", "epochs": 1}
    before = Recommender(**settings).fit(monday(), tmp_path / "run")
    after = started(tmp_path / "run")
    rows = [found.catalogue.ids.index_of(["i04"])[0] + FIRST - 1 for found in (before, after)]
    assert rows[0] != rows[1]
    tables = [
        found.model.state_dict()["features.fields.0.value.weight"] for found in (before, after)
    ]
    assert torch.equal(tables[0][rows[0]], tables[1][rows[1]])
    assert len(tables[1]) == FIRST + tuesday().n_items


@pytest.mark.parametrize("backbone", ["sasrec", "bert4rec"])
def test_an_item_that_was_never_trained_counts_as_new(tmp_path: Path, backbone: str) -> None:
    only_held_out = pl.DataFrame({"user": [100], "item": ["n90"], "time": [1000]})
    log = pl.concat([cycle_events(), only_held_out])
    Recommender(**SMALL | {"epochs": 1, "backbone": backbone}).fit(prepare(log), tmp_path / "run")
    found = started(tmp_path / "run").description.start
    assert found is not None
    assert found["changes"]["items"] == {"old": 15, "new": 2, "gone": 1}


def test_it_learns_what_is_new_in_few_epochs(runs: Callable[[str], Path]) -> None:
    after = Recommender(start=runs("sasrec")).fit(tuesday())
    assert after.trained is not None
    assert after.trained.progress.epoch <= EPOCHS
    assert after.evaluate(baselines=False)["ndcg@10"] > 0.8
    later = Recommender(start=runs("sasrec"))
    assert later.config.training.epochs == 2  # those of the run, which are fewer
    assert later.config.training.learning_rate == SMALL["learning_rate"]


class Killed(Callback):
    """Copies the run in the middle of its last epoch, as a kill would leave it."""

    def __init__(self, run: Path, copy: Path, patch: pytest.MonkeyPatch) -> None:
        self.run, self.copy, self.patch, self.last = run, copy, patch, False

    def on_epoch_start(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        del targets, done
        self.last = epoch == epochs
        if self.last:
            self.patch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)

    def on_batch_end(self, loss: float, targets: int) -> None:
        del loss, targets
        if self.last and not self.copy.exists():
            shutil.copytree(self.run, self.copy)


@EVERY_BACKBONE
def test_killed_and_resumed_is_the_same_run(
    runs: Callable[[str], Path], backbone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, killed = tmp_path / "run", tmp_path / "killed"
    settings = {"start": runs(backbone), "epochs": 3, "dropout": 0.1, "final": True}
    Recommender(**settings).fit(tuesday(), out, callbacks=[Killed(out, killed, monkeypatch)])
    Recommender(**settings).fit(tuesday(), killed, resume=True)
    assert digest(killed / "model.safetensors") == digest(out / "model.safetensors")


def test_the_training_on_all_events_starts_from_the_run_too(
    runs: Callable[[str], Path], tmp_path: Path
) -> None:
    settings = {"epochs": 1, "learning_rate": 1e-30, "final": True}
    Recommender(start=runs("sasrec"), **settings).fit(tuesday(), tmp_path / "run")
    before, after = load(runs("sasrec")), load(tmp_path / "run")
    rows = [int(found.catalogue.ids.index_of(["i04"])[0]) for found in (before, after)]
    vectors = [
        found.model.item.weight[row] for found, row in zip((before, after), rows, strict=True)
    ]
    torch.testing.assert_close(*vectors)


def test_a_resumed_run_has_the_same_start(runs: Callable[[str], Path], tmp_path: Path) -> None:
    out, other = tmp_path / "run", tmp_path / "other"
    Recommender(start=runs("sasrec"), epochs=1).fit(tuesday(), out)
    begun = load(out).config
    plain = begun.as_dict()["model"] | begun.as_dict()["training"]
    plain = {name: value for name, value in plain.items() if value is not None}
    with pytest.raises(InputError, match=r"was begun from .*; resume it with start="):
        Recommender(**plain).fit(tuesday(), out, resume=True)
    Recommender(**SMALL | {"epochs": 2, "seed": 3}).fit(monday(), other)
    with pytest.raises(InputError, match="was begun from other weights"):
        Recommender(start=other, epochs=1, seed=0).fit(tuesday(), out, resume=True)
    fresh = tmp_path / "fresh"
    Recommender(**SMALL | {"epochs": 1}).fit(tuesday(), fresh)
    with pytest.raises(InputError, match="was begun without start=; leave it out"):
        Recommender(start=runs("sasrec"), epochs=1).fit(tuesday(), fresh, resume=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"backbone": "core"}, "has the backbone sasrec and not core, and a warm start keeps"),
        ({"backbone": "popularity"}, "has the backbone sasrec and not popularity"),
        ({"width": 32}, "has width 16 and not 32, and a warm start keeps its model; leave width="),
        ({"attention": "softmax"}, "has attention linrec-decay and not softmax"),
        ({"recipe": "small"}, "has no use for the recipe small"),
    ],
)
def test_another_model_is_refused(
    runs: Callable[[str], Path], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        Recommender(start=runs("sasrec"), **changes)


def test_another_loss_or_split_has_its_own_settings(tmp_path: Path) -> None:
    sampled = SMALL | {"epochs": 1, "loss": "sampled-softmax", "negatives": 4, "seen_aware": True}
    Recommender(**sampled, split="last-k", last=1).fit(monday(), tmp_path / "run")
    same = Recommender(start=tmp_path / "run").config
    assert (same.loss.loss, same.split.last) == ("sampled-softmax", 1)
    other = Recommender(start=tmp_path / "run", loss="softmax", split="leave-one-out").config
    assert other.loss.seen_aware
    assert other.split.last is None


def test_a_baseline_has_nothing_to_start_from(tmp_path: Path) -> None:
    Recommender(backbone="popularity").fit(monday(), tmp_path / "run")
    with pytest.raises(InputError, match="holds the baseline popularity, which counts"):
        Recommender(start=tmp_path / "run")


def test_a_run_cannot_replace_its_own_start(runs: Callable[[str], Path]) -> None:
    run = runs("sasrec")
    with pytest.raises(InputError, match="cannot be replaced by a training that starts from it"):
        Recommender(start=run).fit(tuesday(), run, overwrite=True)


def test_a_feature_of_another_kind_is_refused(runs: Callable[[str], Path]) -> None:
    kinds = KINDS | {"year": "categorical"}
    table = features("abc").with_columns(year=pl.col("year") // 4)
    store = prepare(cycle_events(), items=table, feature_kinds=kinds)
    with pytest.raises(InputError, match=r"the feature year was numeric in .* and is categorical"):
        Recommender(start=runs("sasrecf")).fit(store)


def test_figures_that_flatter_are_announced(tmp_path: Path) -> None:
    dated = cycle_events().with_columns(time=1e9 + 86_400.0 * pl.col("time"))
    more = dated.with_columns(time=pl.col("time") + 10.5 * 86_400)
    old, new = prepare(dated, times="real"), prepare(pl.concat([dated, more]), times="real")
    Recommender(**SMALL | {"epochs": 1}, final=True).fit(old, tmp_path / "final")
    quick = {"epochs": 1, "final": False}
    with pytest.warns(UserWarning, match=r"may have been trained on \d+ of 48 test requests"):
        Recommender(start=tmp_path / "final", **quick).fit(old)
    dates = {"split": "temporal", "valid_from": 1e9 + 13 * 86_400, "test_from": 1e9 + 17 * 86_400}
    heard = Messages()
    Recommender(start=tmp_path / "final", **quick, **dates).fit(
        new, tmp_path / "dated", callbacks=[heard]
    )
    assert not any("figures flatter" in message for message in heard.messages)
    with pytest.warns(UserWarning, match="the split is still temporal"):
        Recommender(start=tmp_path / "dated", epochs=1).fit(new)
    Recommender(**SMALL | {"epochs": 1}).fit(old, tmp_path / "validated")
    heard = Messages()
    Recommender(start=tmp_path / "validated").fit(new, callbacks=[heard])
    assert not any("figures flatter" in message for message in heard.messages)
    assert any("Warm start from" in message for message in heard.messages)


def test_items_under_other_names_are_announced(runs: Callable[[str], Path]) -> None:
    other = cycle_events().with_columns(item=pl.lit("sku-") + pl.col("item"))
    with pytest.warns(UserWarning, match=r"no item of the data .*here 'sku-i.*same ids"):
        found = Recommender(start=runs("sasrec"), epochs=1).fit(prepare(other))
    assert found.description.start["changes"]["items"] == {"old": 0, "new": 16, "gone": 16}  # type: ignore[index]
    heard = Messages()
    Recommender(start=runs("sasrec"), epochs=1).fit(tuesday(), callbacks=[heard])
    assert not any("same ids" in message for message in heard.messages)


class Messages(Callback):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_message(self, message: str) -> None:
        self.messages.append(message)


def test_from_on_the_command_line(linrec: Command, refused: Refused, tmp_path: Path) -> None:
    cycle_events().write_csv(tmp_path / "monday.csv")
    tuesday_log = pl.concat(
        [cycle_events(), pl.DataFrame({"user": [100] * 3, "item": ["n90"] * 3, "time": [50] * 3})]
    )
    tuesday_log.write_csv(tmp_path / "tuesday.csv")
    for day in ("monday", "tuesday"):
        linrec("prepare", tmp_path / f"{day}.csv", "--out", tmp_path / day)
    first, second = tmp_path / "first", tmp_path / "second"
    linrec("train", tmp_path / "monday", "--out", first, *flags_of(SMALL | {"epochs": 1}))
    done = linrec("train", tmp_path / "tuesday", "--from", first, "--out", second)
    assert done.code == 0, done.err
    assert ["items", "16", "1", "0"] in [line.split() for line in done.out.splitlines()]
    third = ("--from", first, "--out", tmp_path / "third")
    sentence = refused("train", tmp_path / "tuesday", *third, "--width", "64")
    assert "leave --width out, or train without --from" in sentence
