"""A new model while serving: by signal, by request, or because the run folder changed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from threading import Event, Thread, current_thread, main_thread
from typing import Any

from fastapi import APIRouter, Security

from linrec.serving.engine import Engine
from linrec.serving.http import schemas as s
from linrec.serving.http.errors import ForbiddenError
from linrec.serving.http.observing import LOG, Metrics
from linrec.serving.http.options import Sharing
from linrec.serving.http.routes import ERRORS, bearer
from linrec.serving.model import fingerprint_of
from linrec.types import InputError

EXPIRE_SECONDS = 60.0  # between two looks for users to forget


class Reloader:
    def __init__(self, engine: Engine, metrics: Metrics, sharing: Sharing | None = None) -> None:
        self._engine, self._metrics, self._sharing = engine, metrics, sharing
        self._tried = b""  # fingerprint of the newest run that was loaded or refused
        self.expiry_problem: str | None = None
        self.problem: str | None = None  # why the newest model in the folder is not served

    def reload(self) -> bool:
        """Whether there was a new model; one that cannot be read raises and changes nothing."""
        try:
            changed = self._engine.reload()
        except InputError as error:
            self._metrics.reloads.labels("refused").inc()
            LOG.error("reload refused", extra={"fields": {"reason": str(error)}})
            self.problem = str(error)
            raise
        self.problem = None
        self._metrics.reloads.labels("changed" if changed else "same").inc()
        fields = {"changed": changed, "fingerprint": self._engine.model.fingerprint.hex()}
        LOG.info("reload", extra={"fields": fields})
        return changed

    def router(self, *, guarded: bool) -> APIRouter:
        router = APIRouter(responses=ERRORS, dependencies=[Security(bearer)])

        @router.post(
            "/v1/reload",
            summary="Load the run again",
            tags=["operation"],
            responses={403: {"model": s.ErrorResponse, "description": "The server has no token."}},
        )
        def reload() -> s.ReloadResponse:
            """Read the run folder again; no request fails meanwhile. Needs a token to be set."""
            if not guarded:
                raise ForbiddenError(
                    "reloading by request needs a server with a token; send SIGHUP"
                )
            changed = self.reload()
            if self._sharing is not None:  # this worker has tried it; now all of them
                self._sharing.reload_all()
            return s.ReloadResponse(
                changed=changed, fingerprint=self._engine.model.fingerprint.hex()
            )

        return router

    @contextlib.contextmanager
    def listening(self, watch: float | None) -> Iterator[None]:
        """To SIGHUP where there is one, and every `watch` seconds to the folder."""
        end = Event()
        threads: list[Thread] = []

        def on_signal(*_: Any) -> None:
            Thread(target=self._quietly, args=(self.reload,), name="reload", daemon=True).start()

        listens = hasattr(signal, "SIGHUP") and current_thread() is main_thread()
        if listens:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_signal)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])  # workers block it
        if watch is not None:
            threads.append(Thread(target=self._watch, args=(watch, end), daemon=True))
        if self._engine.settings.user_ttl is not None:
            threads.append(Thread(target=self._expire, args=(end,), daemon=True))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            end.set()
            if listens:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            for thread in threads:
                thread.join()

    def _quietly(self, work: Callable[[], object]) -> None:
        """Without an end to the thread: the log and readiness report what went wrong."""
        try:
            work()
        except InputError:
            pass  # refused, and reported by `reload`
        except Exception as error:
            self._metrics.reloads.labels("failed").inc()
            LOG.error("failed", exc_info=error)
            self.problem = f"looking for a new model failed ({type(error).__name__}); see the log"

    def _watch(self, seconds: float, end: Event) -> None:
        self._tried = self._engine.model.fingerprint
        while not end.wait(seconds):
            self._quietly(self._look)

    def _expire(self, end: Event) -> None:
        """Forget users whose time is over, now and every so often."""
        while True:
            try:
                gone = self._engine.expire()
                if gone:
                    LOG.info("expired", extra={"fields": {"users": gone}})
                self.expiry_problem = None
            except Exception as error:
                LOG.error("failed", exc_info=error)
                name = type(error).__name__
                self.expiry_problem = f"forgetting expired users failed ({name}); see the log"
            if end.wait(EXPIRE_SECONDS):
                return

    def _look(self) -> None:
        """A run that was refused is tried again once it changes, after a failure at once."""
        newest = fingerprint_of(self._engine.model.run)
        if newest == self._tried:
            if newest == self._engine.model.fingerprint:
                self.problem = None
            return
        try:
            self.reload()
        except InputError:
            self._tried = newest
            raise
        self._tried = newest
