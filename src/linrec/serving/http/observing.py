"""What an operator sees: metrics for Prometheus, and logs as JSON lines without personal data."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterable
from datetime import datetime, timezone
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linrec.serving.engine import Engine

LOG = logging.getLogger("linrec.serving")
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    def __init__(self, engine: Engine) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "linrec_requests", "Requests by route and status.", ["route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "linrec_request_seconds", "Seconds to the response.", ["route"], buckets=BUCKETS,
            registry=self.registry,
        )  # fmt: skip
        self.events = Counter(
            "linrec_events", "Events received, by outcome.", ["outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.recommendations = Counter(
            "linrec_recommendations",
            "Recommendation lists, by source.",
            ["source"],
            registry=self.registry,
        )
        self.reloads = Counter(
            "linrec_reloads",
            "Reloads of the model, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self.registry.register(_EngineGauges(engine))


class _EngineGauges(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[GaugeMetricFamily]:
        model = self._engine.model
        about = GaugeMetricFamily(
            "linrec_model", "The model that is served.", labels=["fingerprint", "streaming"]
        )
        about.add_metric([model.fingerprint.hex(), str(model.streams).lower()], 1)
        yield about
        yield GaugeMetricFamily("linrec_items", "Items the model knows.", model.n_items)
        yield GaugeMetricFamily(
            "linrec_states_rebuilt", "States rebuilt from histories.", self._engine.rebuilt
        )


class RequestLog:
    """One log line and one count per request, whoever responds."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = perf_counter(), 500  # a failure is answered outside of here

        async def recording(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, recording)
        finally:
            self._record(scope, status, perf_counter() - begin)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", "unmatched")
        record(self._metrics, scope["method"], route, status, seconds)


def record(metrics: Metrics, method: str, route: str, status: int, seconds: float) -> None:
    """One request in the metrics and in the log."""
    metrics.requests.labels(route, status).inc()
    metrics.seconds.labels(route).observe(seconds)
    fields = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 2)}
    LOG.info("request", extra={"fields": fields})


class JsonLines(logging.Formatter):
    """One object per line. Of an exception type and place, not its text, which may quote ids."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage() if record.exc_info is None else "failed",
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
        return json.dumps(line)


def log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("linrec.serving", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").handlers = []  # its parent writes
    logging.getLogger("uvicorn.error").propagate = True
    logging.getLogger("uvicorn.access").disabled = True  # its lines would hold user ids
