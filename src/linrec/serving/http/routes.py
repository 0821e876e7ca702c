"""The addresses. Each takes what came, asks the engine, and writes down the answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Security
from fastapi.security import HTTPBearer
from pydantic import AfterValidator
from starlette.responses import Response

from linrec.serving import Append, Appended, Ask, Engine, NewEvent
from linrec.serving.answers import Answer, Item
from linrec.serving.http import paths  # noqa: F401 - registers the convertor of ids
from linrec.serving.http import schemas as s
from linrec.serving.http.observing import Metrics

Limit = Annotated[int, Query(ge=1, le=s.MOST_K)]
Search = Annotated[str, Query(max_length=s.MOST_TEXT), AfterValidator(s.as_id)]
IdInPath = Annotated[
    str, Path(min_length=1, max_length=s.MOST_TEXT), AfterValidator(s.as_id)
]  # fmt: skip
ERRORS: dict[int | str, dict[str, object]] = {
    status: {"model": s.ErrorAnswer, "description": why}
    for status, why in {
        400: "Not JSON, or not UTF-8.",
        401: "No token, or another.",
        404: "No such user or item.",
        408: "The request did not arrive in time.",
        409: "A late event, where such are refused.",
        413: "Too large.",
        422: "A field is missing, unknown or wrong.",
        503: "The store does not answer; try again.",
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


@api.post("/events", summary="Append events", tags=["events"])
def append(request: Request, body: s.EventsRequest) -> s.EventsAnswer | s.EventsBatchAnswer:
    """Keep events and bring the users' states up to date. Answered when they are safely kept.

    In a batch each user's events are kept or not on their own; if one is refused, the answer is
    that refusal, and the batch can be sent again: event ids make that harmless.
    """
    several = body.batch if isinstance(body, s.EventsBatch) else [body]
    asked = [Append(str(each.user), [_event(event) for event in each.events]) for each in several]
    found = engine_of(request).append_many(asked)
    count = metrics_of(request).events
    count.labels("appended").inc(sum(each.appended for each in found))
    count.labels("duplicate").inc(sum(each.duplicates for each in found))
    answers = [_appended(each) for each in found]
    return s.EventsBatchAnswer(batch=answers) if isinstance(body, s.EventsBatch) else answers[0]


def _event(given: s.EventBody) -> NewEvent:
    return NewEvent(str(given.item), given.time, None if given.id is None else str(given.id))


def _appended(found: Appended) -> s.EventsAnswer:
    return s.EventsAnswer(
        user=found.user, appended=found.appended, duplicates=found.duplicates, events=found.events
    )


@api.post("/recommendations", summary="Recommend", tags=["recommendations"])
def recommend(
    request: Request, body: s.RecommendationRequest
) -> s.RecommendationAnswer | s.RecommendationBatchAnswer:
    """What a user, or whoever has a given history, will most likely want next, best first."""
    several = body.batch if isinstance(body, s.RecommendationBatch) else [body]
    found = engine_of(request).recommend_many([_ask(each) for each in several])
    for each in found:
        metrics_of(request).answers.labels(each.source).inc()
    answers = [_answer(each) for each in found]
    if isinstance(body, s.RecommendationBatch):
        return s.RecommendationBatchAnswer(batch=answers)
    return answers[0]


def _ask(body: s.RecommendationBody) -> Ask:
    return Ask(
        user=None if body.user is None else str(body.user),
        history=_texts(body.history),
        k=body.k,
        exclude=_texts(body.exclude) or (),
        only=_texts(body.only),
        keep_seen=body.keep_seen,
    )


def _texts(items: list[str | int] | None) -> list[str] | None:
    return None if items is None else [str(item) for item in items]


def _answer(found: Answer) -> s.RecommendationAnswer:
    return s.RecommendationAnswer(
        user=found.user, source=found.source, items=[_item(each) for each in found.items]
    )


def _item(found: Item) -> s.ItemAnswer:
    return s.ItemAnswer(item=found.item, title=found.title, score=found.score)


@api.post("/explanations", summary="Explain a score", tags=["recommendations"])
def explain(request: Request, body: s.ExplanationBody) -> s.ExplanationAnswer:
    """By how much each of the newest events (50 at most, oldest first) raised an item's score.

    A contribution is the score minus the score had that event never happened. Contributions need
    not sum to the score.
    """
    user = None if body.user is None else str(body.user)
    found = engine_of(request).explain(str(body.item), user, history=_texts(body.history))
    events = [
        s.ContributionAnswer(item=part.item, title=part.title, contribution=part.contribution)
        for part in found.events
    ]
    return s.ExplanationAnswer(item=found.item, score=found.score, events=events)


@api.get("/users", summary="Find users", tags=["users"])
def find_users(request: Request, search: Search = "", limit: Limit = 20) -> s.UsersAnswer:
    """Users whose id begins so, in order."""
    return s.UsersAnswer(users=engine_of(request).store.users(search, limit))


@api.delete("/users/{user:id}/events/{event:id}", summary="Delete an event", tags=["users"])
def delete_event(request: Request, user: IdInPath, event: IdInPath) -> s.ForgottenAnswer:
    """Remove one event that was sent with an id; the state is rebuilt when next needed."""
    done = engine_of(request).delete_event(user, event)
    return s.ForgottenAnswer(user=user, forgotten=done.existed, pending=done.pending)


@api.put("/users/{user:id}/events/{event:id}", summary="Correct an event", tags=["users"])
def correct_event(
    request: Request, user: IdInPath, event: IdInPath, body: s.CorrectionBody
) -> s.EventAnswer:
    """Replace the item, and the time if given, of one event that was sent with an id."""
    done = engine_of(request).correct_event(user, event, str(body.item), body.time)
    return s.EventAnswer(user=user, event=event, pending=done.pending)


@api.get("/users/{user:id}", summary="Look at a user", tags=["users"])
def look(request: Request, user: IdInPath, limit: Limit = 100) -> s.UserAnswer:
    found = engine_of(request).user(user, limit)
    history = [
        s.HistoryAnswer(item=event.item, title=title, time=event.time, id=event.id)
        for event, title in found.history
    ]
    return s.UserAnswer(user=found.user, events=found.events, history=history, state=found.state)


@api.delete("/users/{user:id}", summary="Forget a user", tags=["users"])
def forget(request: Request, user: IdInPath) -> s.ForgottenAnswer:
    """Remove all that is kept of a user: events, their ids, and the state made from them."""
    done = engine_of(request).forget(user)
    return s.ForgottenAnswer(user=user, forgotten=done.existed, pending=done.pending)


@api.get("/items", summary="Find items", tags=["items"])
def find_items(request: Request, search: Search = "", limit: Limit = 20) -> s.ItemsAnswer:
    """Items whose title or id contains the text; those that begin with it first."""
    found = engine_of(request).model.search(search, limit)
    return s.ItemsAnswer(items=[s.TitleAnswer(item=item, title=title) for item, title in found])


@api.get("/items/{item:id}/similar", summary="Similar items", tags=["items"])
def similar(request: Request, item: IdInPath, k: Limit = 10) -> s.SimilarAnswer:
    """Items whose vectors point the same way; scores are cosines."""
    found = engine_of(request).similar(item, k)
    return s.SimilarAnswer(item=item, items=[_item(each) for each in found])


@open_to_all.get("/healthz", summary="Is it alive?", tags=["operation"])
def health(request: Request) -> s.HealthAnswer:
    model = engine_of(request).model
    about = s.ModelAnswer(
        run=model.run.name,
        fingerprint=model.fingerprint.hex(),
        items=model.n_items,
        streaming=model.streams,
        why_no_state=model.why_no_state,
    )
    return s.HealthAnswer(status="ok", model=about)


@open_to_all.get(
    "/readyz", summary="Can it answer?", tags=["operation"], responses={503: ERRORS[503]}
)
def ready(request: Request) -> s.ReadyAnswer:
    engine_of(request).store.check()
    return s.ReadyAnswer(status="ready")


@open_to_all.get("/metrics", summary="For Prometheus", tags=["operation"])
def metrics(request: Request) -> Response:
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return Response(generate_latest(metrics_of(request).registry), media_type=CONTENT_TYPE_LATEST)
