"""Whatever the schema allows, and much that it does not: never a 500, always a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from linrec.serving import Engine, open_store
from tests.serving.serving_process import within

EXAMPLES = 15  # of each operation
OPERATIONS = [
    ("POST", "/v1/events"),
    ("POST", "/v1/recommendations"),
    ("POST", "/v1/explanations"),
    ("GET", "/v1/users"),
    ("GET", "/v1/users/{user}"),
    ("DELETE", "/v1/users/{user}"),
    ("DELETE", "/v1/users/{user}/events/{event}"),
    ("PUT", "/v1/users/{user}/events/{event}"),
    ("GET", "/v1/items"),
    ("GET", "/v1/items/{item}/similar"),
    ("GET", "/v1/items/availability"),
    ("POST", "/v1/items/availability"),
    ("POST", "/v1/items"),
    ("GET", "/v1/items/added"),
    ("DELETE", "/v1/items/added/{item}"),
    ("GET", "/v1/rules"),
    ("PUT", "/v1/rules/{name}"),
    ("DELETE", "/v1/rules/{name}"),
]


@pytest.fixture(scope="module")
def url(run: Path) -> Iterator[str]:
    with within(Engine(run, open_store("memory"))) as address:
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=str)
def test_no_request_makes_it_fail(url: str, method: str, path: str, mode: str) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operation = schema[path][method]
    generation = getattr(schemathesis.GenerationMode, mode.upper())

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=generation))
    def send(case: schemathesis.Case) -> None:
        answer = case.call_and_validate(checks=[not_a_server_error])
        if answer.status_code >= 400:
            assert list(answer.json()) == ["error"]

    send()


def test_every_operation_is_tried(url: str) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    found = {(o.ok().method.upper(), o.ok().path) for o in schema.get_all_operations()}
    rest = {(method, path) for method, path in found if path.startswith("/v1")} - set(OPERATIONS)
    assert rest == {("POST", "/v1/reload")}
