"""The demo: one command, one page to open."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.conftest import Command


class Page(HTMLParser):
    """Where a page would go for anything outside itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_demo_writes_a_page_that_needs_nothing_else(linrec: Command, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    words = ("demo", "--users", 120, "--epochs", 1, "--out", out)
    result = linrec(*words)
    assert result.code == 0, result.err
    for step in ("1. Prepare", "2. Train", "3. Evaluate", "4. Recommend"):
        assert step in result.out
    assert "Last events of" in result.out

    text = (out / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|@import|url\(", text)
    page = Page(text)
    assert not {"script", "link", "iframe"} & page.tags
    (image,) = page.links
    kind, _, content = image.partition(",")
    assert kind == "data:image/png;base64"
    assert b64decode(content).startswith(b"\x89PNG")
    for words_in_it in ("NDCG@10", "95 % interval", "popularity", "linrec-decay", "fingerprint"):
        assert words_in_it in text
    assert (out / "run" / "evaluation" / "test-full.json").is_file()

    again = linrec(*words)
    assert again.code == 0, again.err
    assert Page((out / "report.html").read_text(encoding="utf-8")).tags == page.tags


def test_the_demo_does_not_write_over_what_is_not_its_own(linrec: Command, tmp_path: Path) -> None:
    data = tmp_path / "demo" / "data"
    data.mkdir(parents=True)
    (data / "precious.txt").write_text("keep me")
    result = linrec("demo", "--users", 60, "--epochs", 1, "--out", tmp_path / "demo")
    assert result.code == 2
    assert "choose another path" in result.err
    assert (data / "precious.txt").read_text() == "keep me"


@pytest.mark.slow
def test_the_model_beats_both_baselines(linrec: Command, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    assert linrec("demo", "--epochs", 6, "--out", out).code == 0
    found = json.loads((out / "run" / "evaluation" / "test-full.json").read_text())
    ndcg = found["metrics"]["ndcg@10"]
    baselines = {name: figures["ndcg@10"] for name, figures in found["baselines"].items()}
    assert len(baselines) == 2
    assert ndcg["low"] > max(baselines.values())
