"""Every public name has an example in its docstring, and every such example runs."""

from __future__ import annotations

import doctest
import inspect
import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import linrec
from linrec import nn, ops
from linrec.serving import Engine

REPO = Path(__file__).resolve().parents[1]
GLOBALS = {"torch": torch, "linrec": linrec, "nn": nn, "ops": ops}
METHODS = ("evaluate", "evaluate_users", "fit", "load", "recommend", "save")  # of Recommender


def public() -> dict[str, Any]:
    """The documented names; aliases of types and values have no docstring of their own."""
    rooms = {"linrec": linrec, "linrec.ops": ops, "linrec.nn": nn}
    named = {
        f"{room}.{name}": getattr(module, name)
        for room, module in rooms.items()
        for name in module.__all__
    }
    methods = {f"linrec.Recommender.{name}": getattr(linrec.Recommender, name) for name in METHODS}
    named |= {"linrec.serving.Engine": Engine, **methods}
    documented = (inspect.isroutine, inspect.isclass)
    return {name: value for name, value in named.items() if any(is_(value) for is_ in documented)}


PUBLIC = public()


def examples(name: str) -> doctest.DocTest:
    text = inspect.getdoc(PUBLIC[name]) or ""
    return doctest.DocTestParser().get_doctest(text, dict(GLOBALS), name, None, 0)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_docstring_has_an_example(name: str) -> None:
    assert examples(name).examples


def test_every_public_name_is_in_the_reference() -> None:
    pages = "\n".join(page.read_text("utf-8") for page in (REPO / "docs" / "api").glob("*.md"))
    names = [name for name in PUBLIC if not name.startswith("linrec.Recommender.")]
    assert [name for name in names if not re.search(rf"^::: {name}\b", pages, re.M)] == []


@pytest.fixture(scope="module")
def trained(demo_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What docs/api/linrec.md says the examples assume: events.csv, items.csv, data and run."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(demo_files, folder, dirs_exist_ok=True)
    linrec.prepare(folder / "events.csv", folder / "data", items=folder / "items.csv")
    linrec.Recommender(recipe="small", epochs=1).fit(folder / "data", out=folder / "run")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_every_example_runs(name: str, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    torch.manual_seed(0)
    report = io.StringIO()
    outcome = doctest.DocTestRunner().run(examples(name), out=report.write)
    assert not outcome.failed, report.getvalue()
