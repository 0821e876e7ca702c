"""Routes for items that came after the training."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Security
from pydantic import BaseModel, Field

from linrec.runs.extending import NewItem
from linrec.serving.http import schemas as s
from linrec.serving.http.routes import ERRORS, IdInPath, bearer, engine_of

MAX_NEW, MAX_NUMBERS = 1_000, 8_192

items_api = APIRouter(prefix="/v1", responses=ERRORS, dependencies=[Security(bearer)])


class NewItemBody(s.Body):
    item: s.NewId
    vector: Annotated[list[s.Number], Field(min_length=1, max_length=MAX_NUMBERS)] | None = Field(
        None, description="Made as the item vectors of the run were, if it reads any."
    )
    features: Annotated[dict[str, s.Values], Field(max_length=s.MAX_FEATURES)] = Field(
        {}, description="Of the run's item features, each with a value or several."
    )
    title: Annotated[str, Field(strict=True, max_length=s.MAX_TEXT)] | None = None


class NewItemsBody(s.Body):
    model_config = s.examples(
        {"items": [{"item": "i9", "title": "New", "features": {"genre": ["Comedy", "Drama"]}}]},
        {"items": [{"item": "i9", "vector": [0.25, -1.5]}]},
    )

    items: Annotated[list[NewItemBody], Field(min_length=1, max_length=MAX_NEW)]


class NewItemsResponse(BaseModel):
    added: list[str]
    items: int = Field(description="That can be recommended by this server now.")


class AddedItemResponse(BaseModel):
    item: str
    title: str | None
    problem: str | None = Field(
        description="Why it has no effect on the model that is served, if so."
    )


class AddedItemsResponse(BaseModel):
    items: list[AddedItemResponse]


class RemovedItemResponse(BaseModel):
    item: str
    removed: bool = Field(description="Whether it had been added.")


@items_api.post("/items", summary="Add items", tags=["items"])
def add_items(request: Request, body: NewItemsBody) -> NewItemsResponse:
    """Items that the run does not know, placed by a vector or by features; all or none are added.

    They can be recommended at once, and by the other servers of the store within a second or two.
    They survive restarts; a newer model that knows an item takes it over. States are rebuilt when
    next needed, as after a reload, so send many items together.
    """
    engine = engine_of(request)
    items = [
        NewItem(
            str(each.item),
            None if each.vector is None else tuple(each.vector),
            each.title,
            each.features,
        )
        for each in body.items
    ]
    engine.add_items(items)
    return NewItemsResponse(added=[each.item for each in items], items=engine.model.n_items)


@items_api.get("/items/added", summary="List added items", tags=["items"])
def added_items(request: Request) -> AddedItemsResponse:
    """In the order of their ids."""
    engine = engine_of(request)
    found = engine.added.listed(engine.model)
    return AddedItemsResponse(
        items=[
            AddedItemResponse(item=each.item, title=each.title, problem=each.problem)
            for each in found
        ]
    )


@items_api.delete("/items/added/{item:id}", summary="Remove an added item", tags=["items"])
def remove_item(request: Request, item: IdInPath) -> RemovedItemResponse:
    """Only one that was added: to hide an item of the run, switch it off."""
    return RemovedItemResponse(item=item, removed=engine_of(request).remove_item(item))
