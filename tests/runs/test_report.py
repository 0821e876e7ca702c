"""report.html: figures that are explained, users with their last items, and nothing that is needed
from elsewhere."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.evaluation import LIST_METRICS, METRICS
from linrec.recommender import Recommender
from linrec.runs.report import EXPLANATIONS, explanations
from linrec.runs.run import Run
from linrec.runs.samples import USERS, last_events, sample_users
from tests.training.cases import cycle
from tests.training.fixtures import dataset, run, store, trained

__all__ = ["dataset", "run", "store", "trained"]


def text(run: Path) -> str:
    return unescape((run / "report.html").read_text(encoding="utf-8"))


def test_every_metric_is_explained(run: Path) -> None:
    assert {*METRICS, *LIST_METRICS, "coverage"} <= EXPLANATIONS.keys()
    evaluation, _ = Run.open(run).load_evaluation("test-full")
    explained = explanations(evaluation)
    assert [name for name, _ in explained] == [
        "Recall", "NDCG", "MRR", "Coverage", "Popularity", "Novelty", "Miscalibration",
    ]  # fmt: skip
    page = text(run)
    for name, sentence in explained:
        assert f"<b>{name}</b>: {sentence}." in page


def test_some_users_with_what_they_had_and_get(run: Path, store: SequenceStore) -> None:
    page = text(run)
    users = sample_users(store).to_list()
    assert len(users) == USERS
    assert re.findall("What it recommends to ([^<]*)<", page) == [str(user) for user in users]
    best = Recommender.load(run).recommend(users, k=5, data=store).table
    for user, rows in best.group_by("user", maintain_order=True):
        assert f"Last events: {last_events(store, user[0])}<" in page
        for item, title in rows.select("item", "title").iter_rows():
            assert f'<td class="text">{item}</td><td class="text">{title or ""}</td>' in page


def test_last_events_by_title_or_id(store: SequenceStore) -> None:
    user = store.users.ids[0]
    last = store.catalogue.ids_of(store.sequences()[0][-5:]).to_list()
    named = {"i00": "[REC] (2007)", "i15": "i15"}  # the last film has no title
    shown = [named.get(item, f"Film {int(item[1:])}") for item in last]
    assert last_events(store, user) == ", ".join(shown)


def test_fewer_users_than_samples() -> None:
    assert len(sample_users(cycle(users=2))) == 2


def test_a_run_without_its_training(trained: Recommender, tmp_path: Path) -> None:
    trained.save(tmp_path / "saved")
    for name in ("learning-curve.png", "history.csv"):
        (tmp_path / "saved" / name).unlink(missing_ok=True)
    saved, opened = Recommender.load(tmp_path / "saved"), Run.open(tmp_path / "saved")
    with pytest.raises(FileNotFoundError):
        text(tmp_path / "saved")
    saved.write_report(opened, saved.evaluate(trained.store), trained.store)
    page = text(tmp_path / "saved")
    assert "How it learned" not in page
    assert "epochs:" not in page
    assert "What it recommends to" in page
