"""Requests and responses in JSON. Ids are text or integers in requests, text in responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from linrec.serving.contexts import MAX_FIELDS
from linrec.serving.ids import MAX_LENGTH, check_new_id
from linrec.serving.messages import check_then, check_user_or_history
from linrec.types import InputError, Seen, argument

MAX_TEXT, MAX_EVENTS, MAX_BATCH, MAX_K, MAX_ITEMS = MAX_LENGTH, 1_000, 256, 1_000, 10_000
MAX_INTEGER = 2**63 - 1
MAX_FEATURES, MAX_VALUES = 20, 100


def as_id(value: str | int) -> str:
    """One spelling: 7 and "7" are the same user. What was stored earlier can always be read."""
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("an id must be text that UTF-8 can hold") from None
    if "\0" in text:
        raise ValueError("an id must not contain a zero character")
    return text


def as_new_id(value: str | int) -> str:
    """An id that is stored."""
    return check_new_id(as_id(value))


Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MAX_TEXT)]
Integer = Annotated[int, Field(strict=True, ge=-MAX_INTEGER, le=MAX_INTEGER)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Id = Annotated[Text | Integer, AfterValidator(as_id)]
NewId = Annotated[Text | Integer, AfterValidator(as_new_id)]
Time = Annotated[
    float,
    Field(strict=True, allow_inf_nan=False, description="Seconds since 1970."),
]
Items = Annotated[list[Id], Field(max_length=MAX_ITEMS)]


def _as_value(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:  # of each part of the union, none of which speaks for all
        raise ValueError(
            f"must be text of at most {MAX_TEXT} characters, a finite number, true or false"
        ) from None


Value = Annotated[
    Annotated[str, StringConstraints(strict=True, max_length=MAX_TEXT)]
    | Annotated[bool, Field(strict=True)]
    | Integer
    | Number,
    WrapValidator(_as_value),
]
EventContext = Annotated[dict[str, Value | None], Field(max_length=MAX_FIELDS)]
Values = Annotated[
    Annotated[list[Value], Field(min_length=1, max_length=MAX_VALUES)],
    BeforeValidator(
        lambda given: given if isinstance(given, list) else [given],
        json_schema_input_type=Annotated[list[Value], Field(min_length=1, max_length=MAX_VALUES)]
        | Value,
    ),
]
Where = Annotated[dict[str, Values], Field(max_length=MAX_FEATURES)]
MaxPer = Annotated[
    dict[str, Annotated[int, Field(strict=True, ge=1, le=MAX_K)]], Field(max_length=MAX_FEATURES)
]
Names = Annotated[list[Text], Field(max_length=MAX_FEATURES)]


def _as_request_time(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        raise ValueError('must be a number of seconds, "unknown", or left out for now') from None


At = Annotated[
    Time | Literal["unknown"],
    WrapValidator(_as_request_time),
    Field(description="When the recommendations are for, in seconds; left out: now."),
]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


def examples(*given: dict[str, Any]) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": list(given)})


class EventBody(Body):
    item: NewId
    time: Time | None = Field(None, description="Left out: now.")
    id: NewId | None = Field(None, description="Of the event: sent again, it counts once.")
    context: EventContext | None = Field(
        None, description="What else is known of it, by the names of the context columns."
    )


class CorrectionBody(Body):
    model_config = examples({"item": "i2", "time": 1700000000.0})

    item: NewId
    time: Time | None = Field(None, description="Left out: unchanged.")


class EventsBody(Body):
    model_config = examples(
        {"user": "u1", "events": [{"item": "i1", "time": 1700000000.0, "id": "e1"}]}
    )

    user: NewId
    events: Annotated[list[EventBody], Field(min_length=1, max_length=MAX_EVENTS)]


class EventsBatch(Body):
    batch: Annotated[list[EventsBody], Field(min_length=1, max_length=MAX_BATCH)]

    @model_validator(mode="after")
    def _not_too_many(self) -> EventsBatch:
        if sum(len(each.events) for each in self.batch) > MAX_EVENTS:
            raise ValueError(f"a batch holds at most {MAX_EVENTS} events; send several")
        return self


class EventsResponse(BaseModel):
    user: str
    appended: int
    duplicates: int = Field(description="Left out, because their ids are stored already.")
    events: int = Field(description="Stored of the user now.")
    too_old: int | None = Field(
        None, description="If any: left out, older than all the events that are kept of the user."
    )


class EventsBatchResponse(BaseModel):
    batch: list[EventsResponse]


class PastEventBody(Body):
    item: Id
    time: Time | None = Field(None, description="Left out: unknown.")
    context: EventContext | None = Field(None, description="Left out: missing.")


def _item_or_event(value: Any) -> str:
    return "<event>" if isinstance(value, dict | PastEventBody) else "<item>"


PastEvent = Annotated[
    Annotated[Id, Tag("<item>")] | Annotated[PastEventBody, Tag("<event>")],
    Discriminator(_item_or_event),
]


class UserOrHistory(Body):
    user: Id | None = None
    history: Annotated[list[PastEvent], Field(max_length=MAX_ITEMS)] | None = Field(
        None, description="Items or events, oldest first, instead of a user."
    )
    at: At | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> UserOrHistory:
        check_user_or_history(self.user, self.history)
        return self


class RecommendationBody(UserOrHistory):
    model_config = examples(
        {"user": "u1", "k": 10, "at": 1700000000.0},
        {"history": ["i1", {"item": "i2", "time": 1700000000.0}], "exclude": ["i3"]},
        {"user": "u1", "where": {"genre": ["Comedy", "Drama"]}, "max_per": {"genre": 2}},
        {"user": "u1", "then": ["i4", {"item": "i5", "time": 1700000000.0}], "rules": ["family"]},
    )

    k: Annotated[int, Field(strict=True, ge=1, le=MAX_K)] = 10
    exclude: Items = Field([], description="Items to hide, beside those the user has had.")
    only: Items | None = Field(None, description="Items to choose from; left out: all.")
    where: Where = Field(
        {},
        description="Features of the items, each with the values of which an item must have one.",
    )
    rules: Names = Field([], description="Names of stored rules, all of which must hold.")
    max_per: MaxPer = Field(
        {}, description="Features of the items, each with how many of one category a list may have."
    )
    then: Annotated[list[PastEvent], Field(max_length=MAX_EVENTS)] = Field(
        [],
        description="Events after what is stored of the user, oldest first, which are not kept; "
        "without a time they happen when the request does.",
    )
    seen: Seen | None = Field(
        None, description="Hide or keep what the user has had; left out: as the run says."
    )
    diversity: Annotated[Number, Field(ge=0, le=1)] | None = Field(
        None,
        description="Re-rank for items that differ by their features, from 0 (off) to 1; left out: "
        "as the server says.",
    )
    keep_seen: bool | None = Field(
        None, strict=True, description='Earlier form of seen: true is "keep", false is "hide".'
    )

    @model_validator(mode="after")
    def _seen_once(self) -> RecommendationBody:
        check_then(self.user, self.then)
        if self.keep_seen is not None and self.seen is not None:
            raise InputError(
                f"{argument('keep_seen')} is the earlier form of {argument('seen')}; give only one "
                "of the two"
            )
        return self


class RecommendationBatch(Body):
    batch: Annotated[list[RecommendationBody], Field(min_length=1, max_length=MAX_BATCH)]


class ItemResponse(BaseModel):
    item: str
    title: str | None
    score: float


class RecommendationResponse(BaseModel):
    user: str | None
    source: Literal["model", "cold-start"] = Field(
        description="cold-start: no known event of the user, so the most popular items."
    )
    items: list[ItemResponse]
    notes: list[str] = Field(description="What to know about these items, if anything.")


class RecommendationBatchResponse(BaseModel):
    batch: list[RecommendationResponse]


class ExplanationBody(UserOrHistory):
    model_config = examples({"user": "u1", "item": "i9"})

    item: Id


class ContributionResponse(BaseModel):
    item: str
    title: str | None
    contribution: float


class ExplanationResponse(BaseModel):
    item: str
    score: float
    events: list[ContributionResponse]


class HistoryResponse(BaseModel):
    item: str
    title: str | None
    time: float
    id: str | None = Field(description="Of the event, if it was sent with one.")
    context: dict[str, Any] = Field({}, description="What else is known of it.")


class UserResponse(BaseModel):
    user: str
    events: int
    history: list[HistoryResponse] = Field(description="The newest events, oldest of them first.")
    state: Literal["current", "stale", "none"] = Field(
        description="stale: rebuilt when next needed. none: this model re-encodes the history."
    )


class ForgottenResponse(BaseModel):
    user: str
    forgotten: bool = Field(description="Whether there was anything to forget.")
    pending: bool = Field(
        description="Whether bytes may remain in the store's files until `linrec store vacuum`."
    )


class EventResponse(BaseModel):
    user: str
    event: str
    pending: bool = Field(description="As for forgetting: the bytes of what was replaced.")


class UsersResponse(BaseModel):
    users: list[str]


class SimilarResponse(BaseModel):
    item: str
    items: list[ItemResponse]


class TitleResponse(BaseModel):
    item: str
    title: str


class ItemsResponse(BaseModel):
    items: list[TitleResponse]


class ModelResponse(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    run: str
    fingerprint: str
    items: int
    streaming: bool = Field(description="Whether an event costs the same whatever the history.")
    reads_time: bool = Field(description="Whether recommendations depend on times.")
    seen: Seen = Field(description="Whether requests that do not say hide or keep seen items.")
    why_no_state: str | None


class HealthResponse(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    status: Literal["ok"]
    model: ModelResponse


class ReadyResponse(BaseModel):
    status: Literal["ready"]
    reload_problem: str | None = Field(
        None, description="Why the newest model in the run folder is not served, if so."
    )
    expiry_problem: str | None = Field(
        None, description="Why users whose time is over were not forgotten, if so."
    )
    store_warnings: list[str] | None = Field(
        None, description="Settings of the store under which acknowledged events can be lost."
    )


class ReloadResponse(BaseModel):
    changed: bool
    fingerprint: str


class ErrorResponse(BaseModel):
    error: str


def _shape(value: Any) -> str:
    given = value if isinstance(value, dict) else vars(value) if hasattr(value, "__dict__") else {}
    return "batch" if "batch" in given else "one"


EventsRequest = Annotated[
    Annotated[EventsBody, Tag("one")] | Annotated[EventsBatch, Tag("batch")], Discriminator(_shape)
]
RecommendationRequest = Annotated[
    Annotated[RecommendationBody, Tag("one")] | Annotated[RecommendationBatch, Tag("batch")],
    Discriminator(_shape),
]
