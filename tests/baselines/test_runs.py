"""A baseline is a RUN as any other: trained, evaluated, recommended with, compared, served."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from linrec.baselines import BASELINES
from linrec.baselines.config import LIMITS
from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender, load
from linrec.runs.config import OF_BASELINES
from linrec.runs.run import Run
from linrec.runs.tensors import pack_tensors
from linrec.serving import Engine, NewEvent, open_store
from linrec.types import InputError

NAMES = sorted(BASELINES)


@pytest.fixture(scope="module")
def runs(store: SequenceStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("baselines")
    for name in NAMES:
        Recommender(backbone=name, seen="hide").fit(store, base / name)
    return {name: base / name for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_baseline_recommends_as_the_one_that_was_counted(
    name: str, store: SequenceStore, runs: dict[str, Path]
) -> None:
    counted = Recommender(backbone=name, seen="hide").fit(store)
    loaded = load(runs[name])
    assert loaded.config.model == counted.config.model
    assert not loaded.config.model.open, "what validation chose is in config.json"
    who = [["i01", "i02", "i01"], ["i05"], []]
    for seen in ("hide", "keep"):
        ours = counted.recommend(who, 6, seen=seen).to_polars()
        assert ours.equals(loaded.recommend(who, 6, seen=seen).to_polars())
    assert ours["source"].to_list()[-1] == "cold-start"
    saved = runs[name].with_name(f"{name}-again")
    loaded.save(saved, overwrite=True)
    assert torch.equal(
        load(saved).model.state_dict()["popularity"], loaded.model.state_dict()["popularity"]
    )


@pytest.mark.parametrize("name", NAMES)
def test_its_figures_are_those_of_its_column(name: str, runs: dict[str, Path]) -> None:
    other = "popularity" if name != "popularity" else "last-item"
    shown = load(runs[other]).evaluate(seen="keep", baselines=name)
    own = load(runs[name]).evaluate(seen="keep", baselines="none")
    assert own.own == name
    assert {metric: own[metric] for metric in own.metrics} == shown.baselines[name]


def test_the_run_holds_no_training(runs: dict[str, Path]) -> None:
    config = json.loads((runs["personal-decay"] / "config.json").read_text())
    assert config["training"].keys() == set(OF_BASELINES), "settings that a baseline has too"
    assert config["model"].keys() == {"backbone", "decay"}
    assert not (runs["personal-decay"] / "checkpoint.safetensors").exists()
    page = (runs["personal-decay"] / "report.html").read_text()
    assert "personal-decay, a baseline" in page
    assert "How it learned" not in page
    assert '<p class="lost">The model does not beat the best baseline' in page


def test_the_report_says_in_colour_whether_the_best_baseline_is_beaten(run: Path) -> None:
    evaluation, _ = Run.open(run).load_evaluation("test-full")
    assert evaluation.against is not None
    colour = "won" if evaluation.against.beaten else "lost"
    sentence = evaluation.against.sentence[1:].replace("&", "&amp;").replace("<", "&lt;")
    page = (run / "report.html").read_text()
    assert f'<p class="{colour}">T{sentence}.</p>' in page
    assert page.count(sentence) == 1


@pytest.mark.parametrize("name", NAMES)
def test_it_is_served_as_it_recommends(name: str, runs: dict[str, Path]) -> None:
    history = ["i01", "i02", "i03", "i02"]
    expected = load(runs[name]).recommend([history], 5, seen="keep").to_polars()
    engine = Engine(runs[name], open_store("memory"))
    try:
        engine.append("ann", [NewEvent(item) for item in history])
        for response in (
            engine.recommend("ann", 5, seen="keep"),
            engine.recommend(k=5, history=history, seen="keep"),
        ):
            assert response.source == "model"
            assert [item.item for item in response.items] == expected["item"].to_list()
            np.testing.assert_allclose(
                [item.score for item in response.items], expected["score"], rtol=1e-6
            )
        assert engine.recommend("nobody", 2).source == "cold-start"
        assert "baseline keeps no state" in (engine.model.why_no_state or "")
        whole = engine.explain("i02", "ann")
        assert len(whole.events) == 4
        if name == "personal":
            assert [event.contribution for event in whole.events] == [0, 1, 0, 1]
        if name == "item-knn":
            assert len(engine.similar("i01", 2)) == 2
        else:
            with pytest.raises(InputError, match="cannot tell which items are similar"):
                engine.similar("i01", 2)
        engine.check()
    finally:
        engine.close()


def test_a_server_can_change_between_a_baseline_and_a_trained_model(
    runs: dict[str, Path], run: Path
) -> None:
    engine = Engine(runs["personal"], open_store("memory"))
    try:
        engine.append("ann", [NewEvent("i01"), NewEvent("i02")])
        assert engine.reload(run)
        assert engine.model.streams
        assert engine.recommend("ann", 3).source == "model"
        assert engine.reload(runs["personal-decay"])
        assert {item.item for item in engine.recommend("ann", 2, seen="keep").items} == {
            "i01", "i02",
        }  # fmt: skip
    finally:
        engine.close()


def test_it_decides_about_seen_items_as_a_training_does(store: SequenceStore) -> None:
    with (
        pytest.warns(UserWarning, match="seen items are kept")
        if store.repeats.common
        else (nullcontext())
    ):
        fitted = Recommender(backbone="personal").fit(store)
    assert fitted.config.training.seen == ("keep" if store.repeats.common else "hide")
    kept = Recommender(backbone="personal", seen="keep").fit(store)
    assert kept.recommend([["i01", "i02", "i02"]], 1).table["item"].item() == "i02"
    assert kept.recommend([["i01", "i02", "i02"]], 1, seen="hide").notes


def test_settings_may_be_given(store: SequenceStore) -> None:
    fitted = Recommender(backbone="personal-decay", decay=0.7).fit(store)
    assert fitted.config.model.decay == 0.7
    assert fitted.recommend([["i01", "i02", "i02"]], 1, seen="keep").table["score"].item() == (
        pytest.approx(1.7)
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"backbone": "personal", "width": 8}, "personal has no use for width; leave width= out"),
        ({"backbone": "personal", "epochs": 8}, "so it has no use for epochs; leave epochs= out"),
        ({"backbone": "ease", "loss": "gbce"}, "so it has no use for loss; leave loss= out"),
        ({"backbone": "personal", "decay": 0.5}, "no use for decay; .* backbone=personal-decay"),
        ({"decay": 0.5}, "the backbone sasrec has no use for decay"),
        ({"backbone": "personal-decay", "decay": 1.5}, "decay=1.5 must be above 0 and at most 1"),
        ({"backbone": "ease", "l2": -1}, "l2=-1.0 must be positive"),
        ({"backbone": "item-knn", "neighbours": 0}, "neighbours=0 must be at least 1"),
        ({"backbone": "personal", "recipe": "small"}, "no use for the recipe small"),
        ({"backbone": "personl"}, "unknown backbone 'personl'; choose from sasrec.*personal"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, sentence) -> None:
    with pytest.raises(InputError, match=sentence):
        Recommender(**settings)


def test_what_cannot_be_is_refused_before_anything_is_written(
    store: SequenceStore, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="nothing to resume"):
        Recommender(backbone="personal").fit(store, runs["personal"], resume=True)
    monkeypatch.setitem(LIMITS, "ease", 3)
    with pytest.raises(InputError, match=r"ease does not fit: 16 items .* another backbone="):
        Recommender(backbone="ease").fit(store, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "tensor", "change"),
    [
        ("popularity", "popularity", lambda x: x[1:]),
        ("popularity", "popularity", lambda x: -x),
        ("popularity", "popularity", lambda x: x.double()),
        ("last-item", "follows_columns", lambda x: x + 1_000),
        ("last-item", "follows_columns", lambda x: x - 50),
        ("last-item", "follows_starts", lambda x: x.flip(0)),
        ("last-item", "follows_starts", lambda x: x * 2),
        ("last-item", "follows_values", lambda x: x[:-1]),
        ("last-item", "follows_values", lambda x: x.to(torch.complex64)),
        ("item-knn", "neighbours_starts", lambda x: x.int()),
        ("ease", "weights", lambda x: x[:, 1:]),
        ("ease", "weights", lambda x: x.half()),
        ("ease", "more", lambda _: torch.ones(1)),
    ],
)
def test_damaged_counts_are_refused(name, tensor, change, runs, tmp_path) -> None:
    """SciPy trusts the arrays of a sparse matrix, and would read outside of them."""
    folder = tmp_path / "run"
    shutil.copytree(runs[name], folder)
    tensors = Run.open(folder).load_weights()
    tensors[tensor] = change(tensors.get(tensor)).contiguous()
    (folder / "model.safetensors").write_bytes(pack_tensors(tensors))
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors does not fit"):
        load(folder)


def test_a_setting_that_nobody_chose_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["personal-decay"], folder)
    config = json.loads((folder / "config.json").read_text())
    config["model"]["decay"] = None
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match="decay is not decided"):
        load(folder)
