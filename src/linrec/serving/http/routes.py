"""The routes. Each turns a body into a call of the engine, and its result into a response."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Security
from fastapi.security import HTTPBearer
from pydantic import AfterValidator
from starlette.responses import Response

from linrec.serving import Append, Appended, Engine, NewEvent, RecommendRequest
from linrec.serving.contexts import context_of, context_text
from linrec.serving.http import paths  # noqa: F401 - registers the convertor of ids
from linrec.serving.http import schemas as s
from linrec.serving.http.observing import Metrics
from linrec.serving.messages import Item, RecommendResponse
from linrec.serving.past import HistoryEvent
from linrec.types import Seen

Limit = Annotated[int, Query(ge=1, le=s.MAX_K)]
Search = Annotated[str, Query(max_length=s.MAX_TEXT), AfterValidator(s.as_id)]
IdInPath = Annotated[
    str, Path(min_length=1, max_length=s.MAX_TEXT), AfterValidator(s.as_id)
]  # fmt: skip
ERRORS: dict[int | str, dict[str, object]] = {
    status: {"model": s.ErrorResponse, "description": why}
    for status, why in {
        400: "Not JSON, or not UTF-8.",
        401: "No token, or a wrong one.",
        404: "No such user or item.",
        408: "The request did not arrive in time.",
        409: "A late event, where they are refused.",
        413: "Too large.",
        415: "Not sent as JSON.",
        422: "A field is missing, unknown or wrong.",
        503: "The store does not answer, or too many requests wait; try again.",
        507: "The store is full.",
    }.items()
}

bearer = HTTPBearer(auto_error=False, description="The token the server was started with, if any.")
api = APIRouter(prefix="/v1", responses=ERRORS, dependencies=[Security(bearer)])
open_to_all = APIRouter()


def engine_of(request: Request) -> Engine:
    engine: Engine = request.app.state.engine
    return engine


def metrics_of(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


@api.post("/events", summary="Append events", tags=["events"], response_model_exclude_none=True)
def append(request: Request, body: s.EventsRequest) -> s.EventsResponse | s.EventsBatchResponse:
    """Store events and update the users' states. The response comes when they are safely stored.

    In a batch each user's events are stored or refused on their own; if one is refused, the
    response is that refusal, and the batch can be sent again: event ids make that harmless.
    """
    result = engine_of(request).append_many(append_requests(body))
    count = metrics_of(request).events
    count.labels("appended").inc(sum(each.appended for each in result))
    count.labels("duplicate").inc(sum(each.duplicates for each in result))
    responses = [_appended(each) for each in result]
    return (
        s.EventsBatchResponse(batch=responses) if isinstance(body, s.EventsBatch) else responses[0]
    )


def append_requests(body: s.EventsRequest) -> list[Append]:
    bodies = body.batch if isinstance(body, s.EventsBatch) else [body]
    return [Append(str(each.user), [_event(event) for event in each.events]) for each in bodies]


def _event(given: s.EventBody) -> NewEvent:
    name = None if given.id is None else str(given.id)
    context_text(given.context)  # refused here, before anything is stored
    return NewEvent(str(given.item), given.time, name, given.context)


def _appended(result: Appended) -> s.EventsResponse:
    return s.EventsResponse(
        user=result.user,
        appended=result.appended,
        duplicates=result.duplicates,
        events=result.events,
        too_old=result.too_old or None,
    )


@api.post("/recommendations", summary="Recommend", tags=["recommendations"])
def recommend(
    request: Request, body: s.RecommendationRequest
) -> s.RecommendationResponse | s.RecommendationBatchResponse:
    """What a user, or somebody with a given history, will most likely want next, best first."""
    result = engine_of(request).recommend_many(recommend_requests(body))
    for each in result:
        metrics_of(request).recommendations.labels(each.source).inc()
    responses = [_recommendation(each) for each in result]
    if isinstance(body, s.RecommendationBatch):
        return s.RecommendationBatchResponse(batch=responses)
    return responses[0]


def recommend_requests(body: s.RecommendationRequest) -> list[RecommendRequest]:
    bodies = body.batch if isinstance(body, s.RecommendationBatch) else [body]
    return [_recommend_request(each) for each in bodies]


def _recommend_request(body: s.RecommendationBody) -> RecommendRequest:
    return RecommendRequest(
        user=None if body.user is None else str(body.user),
        history=_history(body.history),
        k=body.k,
        exclude=_texts(body.exclude) or (),
        only=_texts(body.only),
        where=body.where,
        seen=_seen(body),
        at=body.at,
        then=_history(body.then) or (),
        rules=body.rules,
        max_per=body.max_per,
        diversity=body.diversity,
    )


def _seen(body: s.RecommendationBody) -> Seen | None:
    if body.keep_seen is None:
        return body.seen
    return "keep" if body.keep_seen else "hide"


def _history(events: list[str | int | s.PastEventBody] | None) -> list[HistoryEvent] | None:
    if events is None:
        return None
    return [
        (str(event.item), event.time, event.context)
        if isinstance(event, s.PastEventBody)
        else str(event)
        for event in events
    ]


def _texts(items: list[str | int] | None) -> list[str] | None:
    return None if items is None else [str(item) for item in items]


def _recommendation(result: RecommendResponse) -> s.RecommendationResponse:
    return s.RecommendationResponse(
        user=result.user,
        source=result.source,
        items=[_item(each) for each in result.items],
        notes=list(result.notes),
    )


def _item(result: Item) -> s.ItemResponse:
    return s.ItemResponse(item=result.item, title=result.title, score=result.score)


@api.post("/explanations", summary="Explain a score", tags=["recommendations"])
def explain(request: Request, body: s.ExplanationBody) -> s.ExplanationResponse:
    """By how much each of the newest events (50 at most, oldest first) raised an item's score.

    A contribution is the score minus the score had that event never happened. Contributions need
    not sum to the score.
    """
    user = None if body.user is None else str(body.user)
    result = engine_of(request).explain(
        str(body.item), user, history=_history(body.history), at=body.at
    )
    events = [
        s.ContributionResponse(item=part.item, title=part.title, contribution=part.contribution)
        for part in result.events
    ]
    return s.ExplanationResponse(item=result.item, score=result.score, events=events)


@api.get("/users", summary="Find users", tags=["users"])
def find_users(request: Request, search: Search = "", limit: Limit = 20) -> s.UsersResponse:
    """Users whose id begins with the text, in order."""
    return s.UsersResponse(users=engine_of(request).store.users(search, limit))


@api.delete("/users/{user:id}/events/{event:id}", summary="Delete an event", tags=["users"])
def delete_event(request: Request, user: IdInPath, event: IdInPath) -> s.ForgottenResponse:
    """Remove one event that was sent with an id; the state is rebuilt when next needed."""
    done = engine_of(request).delete_event(user, event)
    return s.ForgottenResponse(user=user, forgotten=done.existed, pending=done.pending)


@api.put("/users/{user:id}/events/{event:id}", summary="Correct an event", tags=["users"])
def correct_event(
    request: Request, user: IdInPath, event: IdInPath, body: s.CorrectionBody
) -> s.EventResponse:
    """Replace the item, and the time if given, of one event that was sent with an id."""
    done = engine_of(request).correct_event(user, event, str(body.item), body.time)
    return s.EventResponse(user=user, event=event, pending=done.pending)


@api.get("/users/{user:id}", summary="Look at a user", tags=["users"])
def look(request: Request, user: IdInPath, limit: Limit = 100) -> s.UserResponse:
    result = engine_of(request).user(user, limit)
    history = [
        s.HistoryResponse(
            item=event.item,
            title=title,
            time=event.time,
            id=event.id,
            context=context_of(event.context),
        )
        for event, title in result.history
    ]
    return s.UserResponse(
        user=result.user, events=result.events, history=history, state=result.state
    )


@api.delete("/users/{user:id}", summary="Forget a user", tags=["users"])
def forget(request: Request, user: IdInPath) -> s.ForgottenResponse:
    """Remove all that is kept of a user: events, their ids, and the state made from them."""
    done = engine_of(request).forget(user)
    return s.ForgottenResponse(user=user, forgotten=done.existed, pending=done.pending)


@api.get("/items", summary="Find items", tags=["items"])
def find_items(request: Request, search: Search = "", limit: Limit = 20) -> s.ItemsResponse:
    """Items whose title or id contains the text; those that begin with it first."""
    result = engine_of(request).model.search(search, limit)
    return s.ItemsResponse(
        items=[s.TitleResponse(item=item, title=title) for item, title in result]
    )


@api.get("/items/{item:id}/similar", summary="Similar items", tags=["items"])
def similar(request: Request, item: IdInPath, k: Limit = 10) -> s.SimilarResponse:
    """Items whose vectors point the same way; scores are cosines."""
    result = engine_of(request).similar(item, k)
    return s.SimilarResponse(item=item, items=[_item(each) for each in result])


@open_to_all.get("/healthz", summary="Is it alive?", tags=["operation"])
def health(request: Request) -> s.HealthResponse:
    model = engine_of(request).model
    about = s.ModelResponse(
        run=model.run.name,
        fingerprint=model.fingerprint.hex(),
        items=model.n_items,
        streaming=model.streams,
        reads_time=model.reads_time,
        seen=model.seen_in(),
        why_no_state=model.why_no_state,
    )
    return s.HealthResponse(status="ok", model=about)


@open_to_all.get(
    "/readyz",
    summary="Can it serve requests?",
    tags=["operation"],
    responses={503: ERRORS[503], 507: ERRORS[507]},
    response_model_exclude_none=True,
)
def ready(request: Request) -> s.ReadyResponse:
    """Model, store and disk are fit to serve and to store; see the operations guide."""
    engine_of(request).check()
    store = engine_of(request).store
    return s.ReadyResponse(
        status="ready",
        reload_problem=request.app.state.reloader.problem,
        expiry_problem=request.app.state.reloader.expiry_problem,
        store_warnings=store.warnings() or None,
    )


@open_to_all.get("/metrics", summary="For Prometheus", tags=["operation"])
def metrics(request: Request) -> Response:
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return Response(generate_latest(metrics_of(request).registry), media_type=CONTENT_TYPE_LATEST)
