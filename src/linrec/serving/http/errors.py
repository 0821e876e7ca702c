"""Every failure as one sentence: {"error": "..."}."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from linrec.serving.appending import FutureEventError, LateEventError
from linrec.serving.batcher import BusyError, ClosedError
from linrec.serving.cancellation import CancelledError
from linrec.serving.http.observing import LOG
from linrec.serving.http.schemas import MAX_TEXT
from linrec.serving.messages import UnfitError, UnknownError
from linrec.serving.stores import DamagedError, StoreError, StoreFullError
from linrec.types import InputError, LinrecError
from linrec.validation import explain_field


class ForbiddenError(InputError):
    """Not on this server."""


STATUS: dict[type[Exception], int] = {
    ForbiddenError: 403,
    UnknownError: 404,
    LateEventError: 409,
    FutureEventError: 422,
    InputError: 400,
    StoreFullError: 507,
    DamagedError: 500,
    UnfitError: 503,
    StoreError: 503,
    ClosedError: 503,
    BusyError: 503,
    CancelledError: 503,
}
ID_RULE = f"an id is text of 1 to {MAX_TEXT} characters in UTF-8, or an integer"
SECONDS_TO_RETRY = "1"


def handle_errors(app: FastAPI) -> None:
    for kind in STATUS:
        app.add_exception_handler(kind, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _known)


def error_response(
    status: int, sentence: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    if status == 503:
        headers = {**(headers or {}), "Retry-After": SECONDS_TO_RETRY}
    return JSONResponse({"error": sentence}, status, headers)


def response_to(error: Exception) -> JSONResponse:
    """What a failure is answered with, whichever way the request came."""
    for kind in type(error).__mro__:
        if kind in STATUS:
            text = error.render(json_field) if isinstance(error, LinrecError) else str(error)
            return error_response(STATUS[kind], text)
    LOG.error("failed", exc_info=error)
    return error_response(500, "this is a defect of the server; its log has the details")


def _known(request: Request, error: Exception) -> JSONResponse:
    del request
    return response_to(error)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, RequestValidationError)
    return error_response(422, sentence_of(error.errors()[0]))


def sentence_of(problem: Any) -> str:
    """Where and what, of pydantic's first message; what was sent is not repeated."""
    path = [str(part) for part in problem["loc"][1:]]
    if path[:1] in (["one"], ["batch"]):  # which form of the body it was parsed as
        del path[0]
    path = [part for part in path if part not in ("<item>", "<event>")]  # which form an event has
    if problem["type"] == "json_invalid":
        return "the body is not JSON; see /docs for examples"
    if problem["type"] in ("missing", "model_attributes_type") and not path:
        return "the body must be a JSON object, sent as Content-Type: application/json; see /docs"
    if problem["type"] == "extra_forbidden":
        return f"{'.'.join(path)} is not a field of this request; see /docs"
    if path and path[-1].startswith("constrained-"):
        return f"{'.'.join(path[:-1])}: {ID_RULE}"
    return explain_field(problem, path, json_field)


def json_field(name: str, value: str | None) -> str:
    """An argument as a request spells it."""
    return f'"{name}"' if value is None else f'"{name}": {value}'


def _refused(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, HTTPException)
    sentence = {
        404: "there is nothing at this address; see /docs",
        405: "this address does not take that method; see /docs",
        400: "the body is not text in UTF-8, or not JSON; see /docs for examples",
    }.get(error.status_code, str(error.detail))
    return error_response(error.status_code, sentence, dict(error.headers or {}))
