"""What an operator sees: metrics for Prometheus, and logs as JSON lines without personal data."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterable
from datetime import datetime, timezone
from functools import cache
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linrec.serving.engine import Engine

LOG = logging.getLogger("linrec.serving")
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """Of this process or, with several workers, of all of them."""

    def __init__(self, engine: Engine, *, shared: bool = False) -> None:
        """shared: whether the counts are in files that all workers have (`worker.py`)."""
        self._engine, self._rebuilt_before = engine, 0
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
        self.handed_on = Counter(
            "linrec_handed_on", "Requests that a worker gave to the one that is home to the user.",
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
        self._rebuilt = Gauge(
            "linrec_states_rebuilt",
            "States rebuilt from histories.",
            registry=self.registry,
            multiprocess_mode="sum",
        )
        if shared:
            self.registry = CollectorRegistry()
            MultiProcessCollector(self.registry)  # type: ignore[no-untyped-call]
        self.registry.register(_EngineGauges(engine))
        # finding the series of some labels takes as long as the count itself
        self._count_of = cache(self.requests.labels)
        self._seconds_of = cache(self.seconds.labels)

    def observe(self, route: str, status: int, seconds: float) -> None:
        """One request."""
        self._count_of(route, status).inc()
        self._seconds_of(route).observe(seconds)
        self.count_rebuilt()

    def count_rebuilt(self) -> None:
        """Those since the last call: a worker that was restarted adds to the sum of before."""
        now, before = self._engine.rebuilt, self._rebuilt_before
        if now != before:
            self._rebuilt_before = now
            self._rebuilt.inc(now - before)


def count_restarts(folder: str) -> Counter:
    """Of workers, counted by the supervisor and shown by every worker."""
    count_in(folder, "supervisor")
    return Counter(
        "linrec_worker_restarts", "Workers that ended and were started again.",
        registry=CollectorRegistry(),
    )  # fmt: skip


def count_in(folder: str, process: int | str) -> None:
    """Let the metrics made from now on live in files of a folder, one set per process.

    Named by the number of the worker and not by its process id, so that one that was restarted
    continues the counts of the one before it.
    """
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    values.ValueClass = values.MultiProcessValue(lambda: process)  # type: ignore[no-untyped-call]


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
    metrics.observe(route, status, seconds)
    if not LOG.isEnabledFor(logging.INFO):
        return
    fields = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 2)}
    # without looking for the caller, whom no line names
    where = (LOG.name, logging.INFO, "", 0)
    LOG.handle(LOG.makeRecord(*where, "request", (), None, extra={"fields": fields}))


class JsonLines(logging.Formatter):
    """One object per line. Of an exception type and place, not its text, which may quote ids."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._own: dict[str, object] = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage() if record.exc_info is None else "failed",
        }
        line |= self._own
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])
            line["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-8:]]
        return json.dumps(line)


def log_as_json(worker: int | None = None) -> None:
    """worker: its number, if there are several."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(worker))
    for name in ("linrec.serving", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").handlers = []  # its parent writes
    logging.getLogger("uvicorn.error").propagate = True
    logging.getLogger("uvicorn.access").disabled = True  # its lines would hold user ids
