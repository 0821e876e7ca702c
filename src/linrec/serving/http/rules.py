"""Routes for stored rules, and for items that are switched off."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Security
from pydantic import AfterValidator, BaseModel, Field

from linrec.serving.http import schemas as s
from linrec.serving.http.routes import ERRORS, bearer, engine_of
from linrec.serving.ids import check_new_id
from linrec.serving.rules import Rule

rules_api = APIRouter(prefix="/v1", responses=ERRORS, dependencies=[Security(bearer)])
Name = Annotated[
    str, Path(min_length=1, max_length=s.MAX_TEXT), AfterValidator(s.as_id),
    AfterValidator(check_new_id),
]  # fmt: skip


class RuleBody(s.Body):
    model_config = s.examples(
        {"where": {"genre": ["Comedy", "Drama"], "in_stock": True}, "max_per": {"genre": 2}}
    )

    only: s.Items | None = Field(None, description="Items to choose from; left out: all.")
    exclude: s.Items = Field([], description="Items to hide.")
    where: s.Where = Field({}, description="As in a request for recommendations.")
    max_per: s.MaxPer = Field({}, description="As in a request for recommendations.")


class RuleResponse(BaseModel):
    only: list[str] | None
    exclude: list[str]
    where: s.Where
    max_per: dict[str, int]


class RulesResponse(BaseModel):
    rules: dict[str, RuleResponse] = Field(description="By name.")


class DeletedResponse(BaseModel):
    rule: str
    deleted: bool = Field(description="Whether there was such a rule.")


class AvailabilityBody(s.Body):
    model_config = s.examples({"off": ["i3", "i4"], "on": ["i5"]})

    off: s.Items = Field([], description="Items that no list may show from now on.")
    on: s.Items = Field([], description="Items that lists may show again.")


class AvailabilityResponse(BaseModel):
    off: list[str] = Field(description="All items that are switched off now.")


@rules_api.put("/rules/{name:id}", summary="Store a rule", tags=["rules"])
def put_rule(request: Request, name: Name, body: RuleBody) -> RuleResponse:
    """Filters under a name; a rule of that name is replaced. All servers of the store use it."""
    rule = Rule(
        only=None if body.only is None else [str(item) for item in body.only],
        exclude=[str(item) for item in body.exclude],
        where=body.where,
        max_per=body.max_per,
    )
    engine = engine_of(request)
    engine.rules.put_rule(name, rule, engine.model)
    return _shown(rule)


@rules_api.get("/rules", summary="List rules", tags=["rules"])
def list_rules(request: Request) -> RulesResponse:
    rules = engine_of(request).rules.rules()
    return RulesResponse(rules={name: _shown(rule) for name, rule in rules.items()})


@rules_api.delete("/rules/{name:id}", summary="Delete a rule", tags=["rules"])
def delete_rule(request: Request, name: Name) -> DeletedResponse:
    """Requests that name it are refused from then on."""
    return DeletedResponse(rule=name, deleted=engine_of(request).rules.delete_rule(name))


@rules_api.post("/items/availability", summary="Switch items off and on", tags=["items"])
def switch(request: Request, body: AvailabilityBody) -> AvailabilityResponse:
    """Durably, also items that the model does not know; other servers follow within a second."""
    rules = engine_of(request).rules
    rules.switch(
        off=[check_new_id(str(item)) for item in body.off], on=[str(item) for item in body.on]
    )
    return AvailabilityResponse(off=rules.off())


@rules_api.get("/items/availability", summary="Items that are off", tags=["items"])
def availability(request: Request) -> AvailabilityResponse:
    return AvailabilityResponse(off=engine_of(request).rules.off())


def _shown(rule: Rule) -> RuleResponse:
    return RuleResponse(
        only=None if rule.only is None else list(rule.only),
        exclude=list(rule.exclude),
        where=dict(rule.where),
        max_per=dict(rule.max_per),
    )
