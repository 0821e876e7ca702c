"""The daily refresh of docs/operations.md, while a server answers requests."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import polars as pl
import pytest

from linrec.recommender import Recommender
from linrec.serving import Engine, open_store
from tests.serving.cases import events
from tests.serving.serving_process import client, within
from tests.test_docs import REPO, blocks_of
from tests.training.cases import SMALL, cycle_events


def script() -> dict[str, object]:
    """The names that the script defines."""
    page = (REPO / "docs/operations.md").read_text("utf-8")
    (code,) = (block.code for block in blocks_of(page) if "def refresh(" in block.code)
    names: dict[str, object] = {}
    exec(compile(code, "operations.md", "exec"), names)
    return names


@pytest.mark.slow
def test_a_refresh_fails_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cycle_events().write_csv("events.csv")
    Recommender(**SMALL | {"epochs": 2}).fit("events.csv", out="runs/monday")
    Path("runs/current").symlink_to("monday")
    engine = Engine("runs/current", open_store("memory"))
    first = engine.model.fingerprint
    for user in range(20):
        engine.append(f"u{user}", events("i01", "i02", "i03"))
    codes: list[int] = []
    end = threading.Event()

    def ask(url: str) -> None:
        with client(url) as http:
            while not end.is_set():
                for user in range(20):
                    response = http.post("/v1/recommendations", json={"user": f"u{user}", "k": 3})
                    codes.append(response.status_code)

    with within(engine, watch=0.05) as url, client(url) as http:
        thread = threading.Thread(target=ask, args=(url,))
        thread.start()
        new = pl.DataFrame({"user": [100] * 3, "item": ["new"] * 3, "time": [50] * 3})
        pl.concat([cycle_events(), new]).write_csv("events.csv")
        script()["refresh"]("tuesday")  # type: ignore[operator]
        until = time.monotonic() + 60
        while engine.model.fingerprint == first:
            assert time.monotonic() < until
            time.sleep(0.02)
        before = len(codes)
        while len(codes) < before + 40:  # each user once more, with the new model
            assert time.monotonic() < until
            time.sleep(0.02)
        end.set()
        thread.join()
        assert set(codes) == {200}
        known = http.post("/v1/recommendations", json={"history": ["new"], "k": 1}).json()
        assert known["source"] == "model"  # yesterday nobody knew it
        response = http.post("/v1/recommendations", json={"user": "u7", "k": 3}).json()
        assert response["source"] == "model"
    assert engine.rebuilt >= 20
