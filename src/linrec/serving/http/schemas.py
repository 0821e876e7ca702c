"""What goes over the wire. Ids are text or whole numbers on the way in, text on the way out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from linrec.serving.ids import MAX_LENGTH, check_new_id

MOST_TEXT, MOST_EVENTS, MOST_BATCH, MOST_K, MOST_ITEMS = MAX_LENGTH, 1_000, 256, 1_000, 10_000
LARGEST = 2**63 - 1


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


Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MOST_TEXT)]
Whole = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Id = Annotated[Text | Whole, AfterValidator(as_id)]
NewId = Annotated[Text | Whole, AfterValidator(as_new_id)]
Time = Annotated[float, Field(allow_inf_nan=False, description="Seconds, or any unit you keep to.")]
Items = Annotated[list[Id], Field(max_length=MOST_ITEMS)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


def examples(*given: dict[str, Any]) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": list(given)})


class EventBody(Body):
    item: NewId
    time: Time | None = Field(None, description="Left out: now.")
    id: NewId | None = Field(None, description="Of the event: sent again, it counts once.")


class CorrectionBody(Body):
    model_config = examples({"item": "i2", "time": 1700000000.0})

    item: NewId
    time: Time | None = Field(None, description="Left out: unchanged.")


class EventsBody(Body):
    model_config = examples(
        {"user": "u1", "events": [{"item": "i1", "time": 1700000000.0, "id": "e1"}]}
    )

    user: NewId
    events: Annotated[list[EventBody], Field(min_length=1, max_length=MOST_EVENTS)]


class EventsBatch(Body):
    batch: Annotated[list[EventsBody], Field(min_length=1, max_length=MOST_BATCH)]

    @model_validator(mode="after")
    def _not_too_many(self) -> EventsBatch:
        if sum(len(each.events) for each in self.batch) > MOST_EVENTS:
            raise ValueError(f"a batch holds at most {MOST_EVENTS} events; send several")
        return self


class EventsAnswer(BaseModel):
    user: str
    appended: int
    duplicates: int = Field(description="Left out, because their ids were here before.")
    events: int = Field(description="Kept of the user now.")


class EventsBatchAnswer(BaseModel):
    batch: list[EventsAnswer]


class Whom(Body):
    user: Id | None = None
    history: Items | None = Field(None, description="Items, oldest first, instead of a user.")

    @model_validator(mode="after")
    def _one_of_two(self) -> Whom:
        if (self.user is None) == (self.history is None):
            raise ValueError("say for whom: user or history, one of the two")
        return self


class RecommendationBody(Whom):
    model_config = examples({"user": "u1", "k": 10}, {"history": ["i1", "i2"], "exclude": ["i3"]})

    k: Annotated[int, Field(ge=1, le=MOST_K)] = 10
    exclude: Items = Field([], description="Not to be shown, beside what the user has had.")
    only: Items | None = Field(None, description="Nothing else is to be shown.")
    keep_seen: bool = Field(False, description="Also offer what the user has had.")


class RecommendationBatch(Body):
    batch: Annotated[list[RecommendationBody], Field(min_length=1, max_length=MOST_BATCH)]


class ItemAnswer(BaseModel):
    item: str
    title: str | None
    score: float


class RecommendationAnswer(BaseModel):
    user: str | None
    source: Literal["model", "popular"] = Field(
        description="popular: nothing is known of the user, so the most frequent items."
    )
    items: list[ItemAnswer]


class RecommendationBatchAnswer(BaseModel):
    batch: list[RecommendationAnswer]


class ExplanationBody(Whom):
    model_config = examples({"user": "u1", "item": "i9"})

    item: Id


class ContributionAnswer(BaseModel):
    item: str
    title: str | None
    contribution: float


class ExplanationAnswer(BaseModel):
    item: str
    score: float
    events: list[ContributionAnswer]


class HistoryAnswer(BaseModel):
    item: str
    title: str | None
    time: float
    id: str | None = Field(description="Of the event, if it was sent with one.")


class UserAnswer(BaseModel):
    user: str
    events: int
    history: list[HistoryAnswer] = Field(description="The newest events, oldest of them first.")
    state: Literal["current", "stale", "none"] = Field(
        description="stale: made anew when next needed. none: this model re-encodes the history."
    )


class ForgottenAnswer(BaseModel):
    user: str
    forgotten: bool = Field(description="Whether there was anything to forget.")
    pending: bool = Field(
        description="Whether bytes may remain in the store's files until `linrec store vacuum`."
    )


class EventAnswer(BaseModel):
    user: str
    event: str
    pending: bool = Field(description="As for forgetting: the bytes of what was replaced.")


class UsersAnswer(BaseModel):
    users: list[str]


class SimilarAnswer(BaseModel):
    item: str
    items: list[ItemAnswer]


class TitleAnswer(BaseModel):
    item: str
    title: str


class ItemsAnswer(BaseModel):
    items: list[TitleAnswer]


class ModelAnswer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    run: str
    fingerprint: str
    items: int
    streaming: bool = Field(description="Whether an event costs the same whatever the history.")
    why_no_state: str | None


class HealthAnswer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    status: Literal["ok"]
    model: ModelAnswer


class ReadyAnswer(BaseModel):
    status: Literal["ready"]


class ReloadAnswer(BaseModel):
    changed: bool
    fingerprint: str


class ErrorAnswer(BaseModel):
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
