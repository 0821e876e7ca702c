"""The page as a person meets it, mouse, keyboard and hostile titles included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.page.browser import browsing, serving, why_no_browser

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("fastapi", reason="the extra linrec[serve] is not installed")
reason = why_no_browser()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.service,
    pytest.mark.skipif(reason is not None, reason=reason or ""),
]

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

HOSTILE = "<img src=x onerror=\"window.taken = 1\"> & 'friends'"
TOKEN = "open sesame"
SOON = 20_000  # milliseconds; a busy machine is no failure


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films of the demo; one has a title that would like to be markup."""
    from linrec.data.downloads.demo import demo_events
    from linrec.data.preparing.prepare import prepare
    from tests.serving.cases import make_run

    events, items = demo_events(users=60)
    place = pl.int_range(pl.len())
    title = pl.when(place == 0).then(pl.lit(HOSTILE)).otherwise("title").alias("title")
    folder = tmp_path_factory.mktemp("page")
    store = prepare(events, folder / "data", items=items.with_columns(title))
    return make_run(folder / "run", store)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[tuple[str, Any]]:
    from linrec.serving import NewEvent

    with serving(run) as (address, engine):
        films = [item for item, _ in engine.model.search("", 30)]
        engine.append("anna", [NewEvent(item, float(at)) for at, item in enumerate(films[:12])])
        yield address, engine


@pytest.fixture
def page(browser: Browser, server: tuple[str, Any]) -> Iterator[Page]:
    """Whatever it shows, nothing may go wrong behind it."""
    opened = browser.new_page()
    wrong: list[str] = []
    opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda sent: _check_origin(sent.url, server[0], wrong))
    opened.set_default_timeout(SOON)
    opened.goto(server[0])
    yield opened
    assert opened.evaluate("window.taken") is None
    opened.close()
    assert wrong == []


def _check_origin(url: str, origin: str, wrong: list[str]) -> None:
    if not url.startswith((f"{origin}/", "data:")):
        wrong.append(f"left the origin: {url}")


def titles(page: Page, name: str = "next") -> list[str]:
    return page.locator(f"#{name} .name").all_inner_texts()


def settled(page: Page, count: int = 10) -> list[str]:
    page.locator("#next li").nth(count - 1).wait_for()
    page.locator("#strip li").first.wait_for()
    return titles(page)


def choose(page: Page, name: str, text: str) -> None:
    """By keyboard alone."""
    field = page.locator(f"#{name}-search")
    field.fill(text)
    page.locator(f"#{name}-options li").first.wait_for()
    field.press("ArrowDown")
    assert field.get_attribute("aria-activedescendant") == f"{name}-option-0"
    field.press("Enter")


def expect_text(found: Locator, text: str | re.Pattern[str]) -> None:
    from playwright.sync_api import expect

    expect(found).to_have_text(text, timeout=SOON)


def test_a_user_is_found_and_an_event_changes_what_comes_next(
    page: Page, server: tuple[str, Any]
) -> None:
    choose(page, "user", "an")
    before = settled(page)
    assert page.locator("#source").inner_text() == "from the model"
    assert re.search(r"answered in [\d.]+ ms", page.locator("#latency").inner_text())
    shown = server[1].recommend("anna", 10).items
    assert before == [" ".join((item.title or item.item).split()) for item in shown]
    known = len(titles(page, "history"))
    page.locator("#next .add").first.click()
    expect_text(page.locator("#history .name").first, before[0])
    assert len(titles(page, "history")) == known + 1
    assert server[1].user("anna").events == known + 1
    after = settled(page)
    assert before[0] not in after
    assert page.locator("#next .moved").count() > 0
    expect_text(page.locator("#said"), re.compile("^Added "))
    assert page.url.endswith("#user=anna")


def test_each_past_event_says_what_it_contributed(page: Page, server: tuple[str, Any]) -> None:
    choose(page, "user", "an")
    settled(page)
    page.locator("#next .pick").nth(2).click()
    third = titles(page)[2]
    expect_text(page.locator("#why-heading"), f"Why {third}?")
    assert page.locator("#next .pick[aria-pressed=true]").count() == 1
    expect_text(page.locator("#history .effect").first, re.compile(r"\d"))
    item = server[1].recommend("anna", 3).items[2].item
    parts = server[1].explain(item, "anna").events
    assert page.locator("#strip li").count() == len(parts)
    newest = page.locator("#strip li").last
    newest.focus()
    value = f"{abs(parts[-1].contribution):.2f}"
    assert page.locator("#readout").inner_text().endswith(value)
    assert value in page.locator("#history .effect").first.inner_text()
    assert page.locator("#history li.pointed").count() == 1
    newest.press("ArrowLeft")
    assert page.locator("#strip li:focus").get_attribute("aria-label") != newest.get_attribute(
        "aria-label"
    )


def test_a_history_is_made_up_from_titles_by_keyboard_alone(page: Page) -> None:
    page.locator("[name=mode]").first.press("ArrowRight")
    expect_text(page.locator("#source"), "most popular")
    expect_text(page.locator("#why-empty"), re.compile("Nothing is known yet"))
    page.locator("#next .pick").first.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('li').parentElement.id") == "next"
    popular = titles(page)
    choose(page, "item", "the")
    expect_text(page.locator("#source"), "from the model")
    assert settled(page) != popular
    page.locator("#next .add").nth(1).press("Enter")
    page.locator("#history li").nth(1).wait_for()
    page.locator("#history button").first.press("Enter")
    page.locator("#history li").nth(1).wait_for(state="detached")
    page.locator("#clear").press("Enter")
    expect_text(page.locator("#source"), "most popular")
    page.locator("#item-search").press("Escape")
    assert page.locator("#item-options").is_hidden()


def test_a_hostile_title_is_only_text(page: Page) -> None:
    page.get_by_text("Make one up").click()
    choose(page, "item", "<img")
    expect_text(page.locator("#history .name").first, HOSTILE)
    settled(page)
    assert page.locator("main img").count() == 0


def test_somebody_new_gets_what_is_popular(page: Page) -> None:
    choose(page, "user", "nobody yet / ünknown")
    expect_text(page.locator("#source"), "most popular")
    expect_text(page.locator("#history-empty"), "Nothing is known of this user yet.")


def test_without_the_token_it_asks_for_it(browser: Browser, run: Path) -> None:
    with serving(run, token=TOKEN) as (address, _):
        page = browser.new_page()
        page.set_default_timeout(SOON)
        page.goto(address)
        page.get_by_text("Make one up").click()
        page.locator("#token-form").wait_for()
        assert "token" in page.locator("#error-text").inner_text()
        page.locator("#token").fill(TOKEN)
        page.locator("#token").press("Enter")
        page.locator("#next li").first.wait_for()
        assert page.locator("#error").is_hidden()
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        assert page.evaluate("sessionStorage.length") == 1
        page.close()


def test_a_server_that_is_gone_is_said_to_be(browser: Browser, run: Path) -> None:
    page = browser.new_page()
    page.set_default_timeout(SOON)
    with serving(run) as (address, _):
        page.goto(address)
        page.get_by_text("Make one up").click()
        page.locator("#next li").first.wait_for()
    page.locator("#next .add").first.click()
    expect_text(page.locator("#error-text"), re.compile("does not answer"))
    page.close()


def test_a_model_that_reads_time_says_as_of_when(
    browser: Browser, tmp_path: Path, run: Path
) -> None:
    from linrec.data.dataset.store import SequenceStore
    from linrec.serving import NewEvent
    from tests.serving.cases import make_run

    timed = make_run(tmp_path / "run", SequenceStore.open(run.with_name("data")), time_gaps=True)
    with serving(timed) as (address, engine):
        films = [item for item, _ in engine.model.search("", 5)]
        engine.append("anna", [NewEvent(item, 1.7e9 + n) for n, item in enumerate(films)])
        page = browser.new_page(timezone_id="UTC")
        page.goto(f"{address}/#user=anna")
        page.locator("#history .when").first.wait_for(timeout=SOON)
        assert page.locator("#history .when").first.inner_text() == "14 Nov 2023, 22:13:24"
        with page.expect_request("**/v1/recommendations") as sent:
            page.select_option("#at-kind", "unknown")
        assert sent.value.post_data_json["at"] == "unknown"
        page.select_option("#at-kind", "time")
        with page.expect_request("**/v1/recommendations") as sent:
            page.fill("#at-time", "2023-11-15T22:13:20")
            page.locator("#at-time").blur()
        assert sent.value.post_data_json["at"] == 1.7e9 + 86_400
        page.close()


def test_the_switch_for_seen_items_starts_as_the_run_says(
    browser: Browser, tmp_path: Path, run: Path
) -> None:
    from linrec.data.dataset.store import SequenceStore
    from linrec.serving import NewEvent
    from tests.serving.cases import make_run

    store = SequenceStore.open(run.with_name("data"))
    other = {"hide": "keep", "keep": "hide"}
    for usual in ("hide", "keep"):
        training = {"seen": usual, "seen_aware": usual == "hide"}
        with serving(make_run(tmp_path / usual, store, training=training)) as (address, engine):
            films = [item for item, _ in engine.model.search("", 5)]
            engine.append("anna", [NewEvent(item, float(n)) for n, item in enumerate(films)])
            page = browser.new_page()
            page.set_default_timeout(SOON)
            with page.expect_request("**/v1/recommendations") as sent:
                page.goto(f"{address}/#user=anna")
            assert "seen" not in sent.value.post_data_json  # the run decides
            settled(page)
            page.wait_for_function(f"document.getElementById('seen').value === '{usual}'")
            assert not page.locator("#notes").is_visible()
            with page.expect_request("**/v1/recommendations") as sent:
                page.select_option("#seen", other[usual])
            assert sent.value.post_data_json["seen"] == other[usual]
            if usual == "hide":
                expect_text(page.locator("#notes"), re.compile("learned nothing about their"))
            page.close()


def test_the_description_of_the_api_needs_no_network(
    browser: Browser, server: tuple[str, Any]
) -> None:
    address, _ = server
    page, elsewhere, failed = browser.new_page(), [], []
    page.route(lambda url: not url.startswith(f"{address}/"), lambda route: route.abort())
    page.on("request", lambda sent: _check_origin(sent.url, address, elsewhere))
    page.on("requestfailed", lambda sent: failed.append(sent.url))
    page.on("response", lambda got: failed.append(got.url) if not got.ok else None)
    page.set_default_timeout(SOON)
    page.goto(f"{address}/docs")
    assert "POST /v1/recommendations" in page.locator("h2").all_inner_texts()
    assert page.evaluate("document.styleSheets[0].cssRules.length") > 3  # it was read and applied
    assert (elsewhere, failed) == ([], [])
    page.close()
