"""A new model goes live only if it works, and no thread that looks for one dies unseen."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from safetensors.torch import load_file, save_file

from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.serving import Engine, StoreError, open_store
from linrec.serving.batcher import Batcher
from linrec.serving.http import reloading
from linrec.types import InputError
from tests.serving.cases import events, make_run
from tests.serving.serving_process import client, within

MakeEngine = Callable[..., Engine]


def spoil(run: Path) -> Path:
    """NaN in every weight."""
    path = run / "model.safetensors"
    weights = {
        name: tensor * float("nan") if tensor.is_floating_point() else tensor
        for name, tensor in load_file(path).items()
    }
    save_file(weights, path)
    return run


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def problem(http: httpx.Client) -> str:
    answer = http.get("/readyz")
    assert answer.status_code == 200
    return str(answer.json().get("reload_problem"))


def test_weights_that_are_not_finite(
    run: Path, data: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    engine = make_engine(run)
    before = engine.model
    with pytest.raises(InputError, match="not finite"):
        engine.reload(spoil(make_run(tmp_path / "nan", data, seed=2)))
    assert engine.model is before


def test_a_model_of_other_items(
    run: Path, data: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    table = data.item_table.select("item").with_columns(item="other-" + data.item_table["item"])
    other = prepare(table.with_columns(user=1, time=0).vstack(table.with_columns(user=2, time=0)))
    engine = make_engine(run)
    others = make_run(tmp_path / "other", other)
    engine.append("u", events("i01", "i02"))
    with pytest.raises(InputError, match="knows no item of a sample of stored users"):
        engine.reload(others)
    engine.forget("u")
    assert engine.reload(others)  # nobody is left who could tell


def test_watching_survives_everything(
    data: SequenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", data)
    engine = Engine(run, open_store("memory"))
    engine.append("u", events("i01", "i02"))
    first, right = engine.model.fingerprint, reloading.fingerprint_of

    def fail(run: Path) -> bytes:
        raise RuntimeError(f"{run} cannot be looked at")

    with within(engine, watch=0.1) as url, client(url) as http:
        assert http.get("/readyz").json() == {"status": "ready"}
        monkeypatch.setattr(reloading, "fingerprint_of", fail)
        wait_until(lambda: "RuntimeError" in problem(http))
        monkeypatch.setattr(reloading, "fingerprint_of", right)
        wait_until(lambda: problem(http) == "None")
        # in one step: of a model that is spoiled in its place, the watcher may serve the good one
        bad = spoil(make_run(tmp_path / "bad", data, seed=3))
        (bad / "model.safetensors").replace(run / "model.safetensors")
        wait_until(lambda: "not finite" in problem(http))
        assert engine.model.fingerprint == first
        assert 'linrec_reloads_total{outcome="refused"}' in http.get("/metrics").text
        assert 'linrec_reloads_total{outcome="failed"}' in http.get("/metrics").text
        make_run(run, data, seed=4)
        wait_until(lambda: engine.model.fingerprint != first)
        wait_until(lambda: problem(http) == "None")


def test_a_store_that_is_away_is_tried_again(
    data: SequenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", data)
    engine = Engine(run, open_store("memory"))
    first, users = engine.model.fingerprint, engine.store.users

    def away(*_: object) -> list[str]:
        raise StoreError("the store is away")

    with within(engine, watch=0.1) as url, client(url) as http:
        monkeypatch.setattr(engine.store, "users", away)
        make_run(run, data, seed=4)
        wait_until(lambda: "StoreError" in problem(http))
        assert engine.model.fingerprint == first
        monkeypatch.setattr(engine.store, "users", users)
        wait_until(lambda: engine.model.fingerprint != first)


def test_a_batch_with_too_few_responses_is_an_error_and_not_the_end() -> None:
    batcher: Batcher[int, int] = Batcher(lambda requests: requests[1:], size=4)
    for _ in range(2):
        with pytest.raises(AssertionError):
            batcher.submit([1])
    batcher.close()
