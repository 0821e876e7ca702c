"""A baseline over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender
from linrec.serving import Engine
from tests.serving.serving_process import client, within


def test_a_baseline_is_served(
    data: SequenceStore, tmp_path: Path, make_engine: Callable[..., Engine]
) -> None:
    Recommender(backbone="personal").fit(data, tmp_path / "run")
    with within(make_engine(tmp_path / "run")) as address, client(address) as http:
        health = http.get("/healthz").json()["model"]
        assert health["streaming"] is False
        assert "baseline keeps no state" in health["why_no_state"]
        assert http.get("/readyz").json() == {"status": "ready"}
        events = [{"item": item} for item in ("i01", "i02", "i02")]
        assert http.post("/v1/events", json={"user": "ann", "events": events}).status_code == 200
        wanted = {"user": "ann", "k": 2, "keep_seen": True}
        found = http.post("/v1/recommendations", json=wanted).json()
        assert found["source"] == "model"
        assert [item["item"] for item in found["items"]] == ["i02", "i01"]
        hidden = http.post("/v1/recommendations", json={"user": "ann", "k": 16}).json()
        assert not {"i01", "i02"} & {item["item"] for item in hidden["items"]}
        refused = http.get("/v1/items/i01/similar")
        assert refused.status_code == 400
        assert "cannot tell which items are similar" in refused.json()["error"]
