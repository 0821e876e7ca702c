"""The approximate index: nearly the exact lists, and exactly what may be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from linrec.data.preparing.prepare import prepare
from linrec.serving import Engine, EngineSettings, open_store
from linrec.types import InputError
from tests.serving.cases import make_run

N_ITEMS = 2000


@pytest.fixture(scope="module", params=["sasrec", "bert4rec"])
def engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, Engine]]:
    """The exact one and the approximate one; bert4rec has an item bias."""
    names = [f"n{number}" for number in range(N_ITEMS)]
    rows = {"user": [1, 2] * N_ITEMS, "item": names * 2, "time": range(2 * N_ITEMS)}
    run = make_run(
        tmp_path_factory.mktemp("ann") / "run", prepare(pl.DataFrame(rows)), backbone=request.param
    )
    settings = (EngineSettings(), EngineSettings(ann_from=1000))
    exact, near = (Engine(run, open_store("memory"), each) for each in settings)
    assert exact.model.index_of_vectors is None
    yield exact, near
    exact.close()
    near.close()


def histories(count: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    return [[f"n{n}" for n in rng.integers(0, N_ITEMS, 20)] for _ in range(count)]


def test_it_finds_most_of_what_is_best(engines: tuple[Engine, Engine]) -> None:
    exact, near = engines
    hits = 0
    for history in histories(30):
        expected = exact.recommend(history=history, k=10).items
        found = near.recommend(history=history, k=10).items
        assert len(found) == 10
        by_item = {item.item: item.score for item in expected}
        hits += sum(item.item in by_item for item in found)
        for item in found:
            if item.item in by_item:
                assert item.score == pytest.approx(by_item[item.item], rel=1e-4, abs=1e-4)
    assert hits / 300 > 0.9  # the measured figure is in docs/serving.md


def test_what_may_not_be_shown_is_not(engines: tuple[Engine, Engine]) -> None:
    exact, near = engines
    for history in histories(5):
        best = [item.item for item in near.recommend(history=history, k=20).items]
        assert not set(best) & set(history)
        rest = near.recommend(history=history, k=10, exclude=best[:15]).items
        assert not {item.item for item in rest} & {*best[:15], *history}
        assert len(rest) == 10
        only = near.recommend(history=history, k=10, only=best[3:6]).items
        assert {item.item for item in only} == set(best[3:6])
        everything = near.recommend(history=history, k=N_ITEMS).items  # more than the index finds
        same = exact.recommend(history=history, k=N_ITEMS).items
        assert [item.item for item in everything[:50]] == [item.item for item in same[:50]]


def test_without_faiss_it_is_told(
    run: Path, make_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"pip install linrec\[ann\]"):
        make_engine(run, ann_from=1)
