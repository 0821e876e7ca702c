"""One application around one engine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

import anyio
import anyio.to_thread
from fastapi import FastAPI
from fastapi.responses import FileResponse, PlainTextResponse
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from linrec.serving.engine import Engine
from linrec.serving.http.access import restrict_access
from linrec.serving.http.browsers import BrowserGuard
from linrec.serving.http.docs_page import mount_docs
from linrec.serving.http.errors import handle_errors
from linrec.serving.http.homes import Homes
from linrec.serving.http.hot import HotRoutes
from linrec.serving.http.items import items_api
from linrec.serving.http.limits import InProgress, RequestLimits
from linrec.serving.http.observing import Metrics, RequestLog
from linrec.serving.http.options import HttpOptions, Sharing
from linrec.serving.http.reloading import Reloader
from linrec.serving.http.routes import api, open_to_all
from linrec.serving.http.rules import rules_api

PAGE = Path(__file__).parents[1] / "page"
THREADS = 128  # requests in threads; most of them wait for the store or a batch

ABOUT = """What each user will want next, kept up to date event by event.

Ids of users, items and events may be text or whole numbers; 7 and "7" are the same, and responses
have text. Every failure is one sentence: `{"error": "..."}`.
"""


class Application(FastAPI):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Without looking for OpenTelemetry with every request, which takes 5 microseconds."""
        if scope["type"] == "http":
            await Starlette.__call__(self, scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    engine: Engine, options: HttpOptions | None = None, sharing: Sharing | None = None
) -> FastAPI:
    """The engine is closed when the application ends. sharing: if there are several workers."""
    options = options or HttpOptions()
    metrics = Metrics(engine, shared=sharing is not None)
    reloader = Reloader(engine, metrics, sharing)
    homes = None if sharing is None else Homes(engine, metrics, sharing)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        async with contextlib.nullcontext() if homes is None else homes.listening():
            with reloader.listening(options.watch):
                yield
        # with a limiter of its own: every thread may be busy with work that nobody waits for
        await anyio.to_thread.run_sync(engine.close, limiter=anyio.CapacityLimiter(1))

    app = Application(
        title="linrec", version=version("linrec"), description=ABOUT, lifespan=lifespan,
        docs_url=None, redoc_url=None,
    )  # fmt: skip
    app.state.engine, app.state.metrics, app.state.reloader = engine, metrics, reloader
    app.include_router(api)
    app.include_router(rules_api)
    app.include_router(items_api)
    app.include_router(open_to_all)
    app.include_router(reloader.router(guarded=options.token is not None))
    handle_errors(app)
    _mount_page(app)
    mount_docs(app)
    in_progress = InProgress()
    app.add_middleware(RequestLimits, options=options, in_progress=in_progress)
    restrict_access(app, options)
    app.add_middleware(BrowserGuard)
    app.add_middleware(RequestLog, metrics=metrics)  # around the others: it records refusals too
    app.add_middleware(
        HotRoutes, engine=engine, metrics=metrics, options=options, in_progress=in_progress,
        homes=homes,
    )  # fmt: skip
    return app


def _mount_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        index = PAGE / "index.html"
        return FileResponse(index) if index.is_file() else PlainTextResponse("linrec; see /docs\n")

    if PAGE.is_dir():
        app.mount("/page", StaticFiles(directory=PAGE), name="page")
