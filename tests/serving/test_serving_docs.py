"""docs/serving.md: what it shows is what a server answers, and no figure was typed in."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks import serving
from linrec.serving import Engine, open_store
from tests.serving.serving_process import client, within
from tests.test_docs import blocks_of

TEXT = serving.PAGE.read_text("utf-8")


def examples() -> Iterator[tuple[str, Any]]:
    """Each command that a server is sent, and the answer the page shows."""
    blocks = list(blocks_of(TEXT))
    for block, after in pairwise(blocks):
        if block.language == "bash" and after.language == "json":
            answers = [json.loads(line) for line in after.code.splitlines()]
            yield from zip(block.code.splitlines(), answers, strict=True)


def sent(http: httpx.Client, command: str) -> httpx.Response:
    """The command, as curl would send it."""
    program, *words = shlex.split(command)
    assert program == "curl"
    options = {}
    address = ""
    while words:
        word = words.pop(0)
        if word in ("--json", "-X"):
            options[word] = words.pop(0)
        elif word != "-s":
            address = word
    path = address.removeprefix("localhost:8000")
    if "--json" in options:
        return http.post(path, json=json.loads(options["--json"]))
    return http.request(options.get("-X", "GET"), path)


def shape(value: Any) -> Any:
    """Fields and kinds of a JSON value; scores differ from model to model."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value]
    return type(value).__name__


def test_every_answer_has_the_shape_that_is_shown(run: Path) -> None:
    found = list(examples())
    assert len(found) == 14
    with within(Engine(run, open_store("memory"))) as url, client(url) as http:
        for command, expected in found:
            answer = sent(http, command)
            assert answer.status_code == 200, command
            assert shape(answer.json()) == shape(expected), command


def test_no_figure_on_the_page_was_typed_in() -> None:
    if not serving.OUT.exists():
        pytest.skip("results/benchmarks/serving.json has not been made yet")
    assert serving.rendered(TEXT) == TEXT
