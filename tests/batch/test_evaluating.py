"""Ranks that several workers make are those of one process, to the last one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from linrec.batch import evaluating
from linrec.batch.evaluating import PoolRanker
from linrec.cluster.options import EngineOptions
from linrec.evaluation import ranks
from linrec.recommender import load
from linrec.types import InputError
from tests.cli.conftest import Command, linrec
from tests.training.cases import digest

__all__ = ["linrec"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"protocol": "pop100", "split": "valid", "seed": 3},
    {"seen": "keep", "request_time": "unknown", "ks": (3, 7)},
]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of some users, although there are few of them."""
    whole = ranks._batches

    def some(histories: Any, n_items: int, options: Any) -> Any:
        for rows in whole(histories, n_items, options):
            yield from (rows[start : start + 5] for start in range(0, len(rows), 5))

    monkeypatch.setattr(ranks, "_batches", some)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_parts_make_the_whole(
    run: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, users = load(run).evaluate_users(**options)
    done: list[int] = []
    for tasks in (1, 3, 64):
        monkeypatch.setattr(evaluating, "TASKS", tasks)
        ranker = PoolRanker(EngineOptions(), run, None, options)
        found, found_users = load(run).evaluate_users(
            rank=ranker, progress=lambda done_so_far, _: done.append(done_so_far), **options
        )
        assert found == whole
        assert found_users.equals(users)
    assert whole.n_users in done


def test_the_engine_needs_ray_to_have_workers(run: Path, linrec: Command) -> None:
    refused = linrec("evaluate", run, "--workers", 2)
    assert refused.code == 2
    assert "--workers 2 needs --engine ray" in refused.err


@pytest.mark.slow
@pytest.mark.usefixtures("ray_alone")
def test_ray_writes_the_same_files(run: Path, tmp_path: Path, linrec: Command) -> None:
    pytest.importorskip("ray", reason="needs linrec[ray]")
    one, other = (Path(shutil.copytree(run, tmp_path / name)) for name in ("one", "other"))
    assert linrec("evaluate", one, "--seen", "keep").code == 0
    ended = linrec("evaluate", other, "--seen", "keep", "--engine", "ray", "--workers", 2)
    assert ended.code == 0, ended.err
    for name in ("test-full-seen.json", "test-full-seen.parquet"):
        assert digest(one / "evaluation" / name) == digest(other / "evaluation" / name)


def test_a_final_run_is_refused_before_anything_starts(run: Path) -> None:
    model = load(run)
    model._description = model.description.model_copy(update={"final": True})
    ranker = PoolRanker(EngineOptions(engine="ray", address="127.0.0.1:1"), run, None, {})
    with pytest.raises(InputError, match="was trained on all events"):
        model.evaluate_users(rank=ranker)
