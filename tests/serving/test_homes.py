"""Workers hand events on to the one that is home to the user."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.serving import Engine, EngineSettings, NewEvent, open_store
from linrec.serving.appending import Append
from linrec.serving.http import app, homes
from linrec.serving.http.homes import HEAD, LEAVING, Homes, Link
from linrec.serving.http.observing import Metrics
from linrec.serving.http.options import Sharing
from linrec.serving.stores.sharded import shard_of
from tests.serving.serving_process import client, within

WHOLE = "application/json; charset=utf-8"  # is stored where it arrives


class Pair:
    """Two workers in threads of this process, with a store file between them."""

    def __init__(self, run: Path, folder: Path) -> None:
        self.run, self.folder = run, folder
        self.store = open_store(str(folder / "users.sqlite"))
        self._stacks = [ExitStack(), ExitStack()]
        self.http = [self.start(number) for number in (0, 1)]

    def start(self, number: int) -> httpx.Client:
        stack = self._stacks[number]
        engine = Engine(
            self.run, open_store(str(self.folder / "users.sqlite")), EngineSettings(late="refuse")
        )
        sharing = Sharing(number, 2, str(self.folder), lambda: None)
        return stack.enter_context(client(stack.enter_context(within(engine, sharing))))

    def stop(self, number: int) -> None:
        self._stacks[number].close()

    def close(self) -> None:
        for stack in self._stacks:
            stack.close()
        self.store.close()

    def handed_on(self, number: int) -> int:
        lines = self.http[number].get("/metrics").text.splitlines()
        return int(float(next(x for x in lines if x.startswith("linrec_handed_on_")).split()[1]))

    def until_handed_on(self, user: str) -> None:
        """The first request for another worker is what connects the two."""
        before, tries = self.handed_on(0), 0
        while self.handed_on(0) == before:
            tries += 1
            assert tries < 1000, "the workers did not connect"
            assert post(self.http[0], user, "i01", id=f"{user} {tries}").status_code == 200


def post(http: httpx.Client, user: str, item: str, kind: str = "", **more: Any) -> httpx.Response:
    body = {"user": user, "events": [{"item": item, **more}]}
    headers = {"Content-Type": kind} if kind else {}
    return http.post("/v1/events", json=body, headers=headers)


@pytest.fixture
def pair(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    # each counts for itself, as processes do until the files of their counts are added up
    monkeypatch.setattr(app, "Metrics", lambda engine, **_: Metrics(engine))
    made = Pair(run, tmp_path)
    yield made
    made.close()


def of_home(number: int, count: int) -> list[str]:
    """Users of the worker with that number."""
    users = (f"user-{n}" for n in range(100 * count))
    return [user for user in users if shard_of(user, 2) == number][:count]


def test_each_user_is_stored_by_one_worker(pair: Pair) -> None:
    near, far = of_home(0, 5), of_home(1, 5)
    pair.until_handed_on(far[0])
    before = pair.handed_on(0)
    for user in (*near, *far):
        made = post(pair.http[0], user, "i02", id="new").json()
        assert (made["user"], made["appended"]) == (user, 1)
        assert [event.id for event in pair.store.history(user)][-1] == "new"
    assert pair.handed_on(0) == before + len(far)
    assert pair.handed_on(1) == 0


def test_responses_are_those_of_the_worker_itself(pair: Pair) -> None:
    user = of_home(1, 1)[0]
    pair.until_handed_on(user)
    newest = {"time": 2e9, "id": "newest"}  # later ones than that are refused
    for more in ({"time": 50.0}, newest, {"time": 1e18}, {"time": 60.0, "id": "late"}):
        before = pair.handed_on(0)
        hot = post(pair.http[0], user, "i03", **more)
        assert pair.handed_on(0) == before + 1
        whole = post(pair.http[0], user, "i03", WHOLE, **more)
        assert pair.handed_on(0) == before + 1
        assert hot.status_code == whole.status_code
        if hot.is_success:  # the second one of the same id is a duplicate
            assert hot.json()["user"] == whole.json()["user"]
            assert set(hot.json()) == set(whole.json())
        else:
            assert hot.json() == whole.json()
        assert set(hot.headers) == set(whole.headers)


def test_what_is_wrong_stays_where_it_is_said(pair: Pair) -> None:
    user = of_home(1, 1)[0]
    pair.until_handed_on(user)
    before = pair.handed_on(0)
    assert post(pair.http[0], user, "", id="x").status_code == 422
    assert pair.handed_on(0) == before


def test_a_worker_that_is_away_is_not_waited_for(pair: Pair) -> None:
    user = of_home(1, 1)[0]
    pair.until_handed_on(user)
    pair.stop(1)
    before = pair.handed_on(0)
    for number in range(5):
        assert post(pair.http[0], user, "i02", id=f"away {number}").status_code == 200
    assert pair.handed_on(0) == before
    pair.http[1] = pair.start(1)
    pair.until_handed_on(user)
    kept = [event.id for event in pair.store.history(user)]
    assert len(kept) == len(set(kept))
    assert {f"away {number}" for number in range(5)} <= set(kept)


def test_a_worker_that_leaves_answers_first(pair: Pair) -> None:
    users, failed, over = of_home(1, 4), [], threading.Event()
    pair.until_handed_on(users[0])
    counts = dict.fromkeys(users, 0)

    def send(user: str) -> None:
        with client(str(pair.http[0].base_url)) as http:
            while not over.is_set():
                answer = post(http, user, "i01", id=f"{user}-{counts[user]}")
                counts[user] += answer.is_success
                if not answer.is_success:
                    failed.append(answer.text)

    threads = [threading.Thread(target=send, args=(user,)) for user in users]
    for thread in threads:
        thread.start()
    pair.stop(1)
    over.set()
    for thread in threads:
        thread.join()
    assert not failed
    for user in users:
        kept = [event.id for event in pair.store.history(user)]
        assert len(kept) == len(set(kept))
        assert {f"{user}-{number}" for number in range(counts[user])} <= set(kept)


def test_a_worker_that_dies_is_reported(run: Path, tmp_path: Path) -> None:
    """Whether it kept the events is not known, so they are not stored a second time."""
    user = of_home(1, 1)[0]

    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(HEAD.size)
        writer.transport.abort()

    async def asked() -> Any:
        engine = Engine(run, open_store(str(tmp_path / "users.sqlite")))
        sharing = Sharing(0, 2, str(tmp_path), lambda: None)
        made = Homes(engine, Metrics(engine), sharing)
        loop = asyncio.get_running_loop()
        server = await asyncio.start_unix_server(dies, str(tmp_path / "worker-1.sock"))
        async with made.listening():
            waiting = None
            while waiting is None:
                waiting = made.hand_on(Append(user, [NewEvent("i01")]), loop)
                await asyncio.sleep(0.01)
            await asyncio.wait_for(waiting.changed, 30)
        server.close()
        engine.close()
        return waiting.results[0]

    status, content = asyncio.run(asked())
    assert status == 503
    assert homes.WORKER_ENDED.encode() in content


def test_users_of_one_file_have_one_home(run: Path, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "four.users"), 4)
    engine = Engine(run, store)
    for workers in (2, 3, 8):
        made = Homes(engine, Metrics(engine), Sharing(0, workers, "", lambda: None))
        users = [f"user-{n}" for n in range(400)]
        assert {made.home(user) for user in users} == set(range(workers))
        if workers <= 4:
            pairs = {(shard_of(user, 4), made.home(user)) for user in users}
            assert len(pairs) == 4
    engine.close()


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.dictionaries(st.text(max_size=3), st.floats(0, 9) | st.integers() | st.booleans())
    | st.none(),
)
def test_a_request_arrives_as_it_was_sent(
    time: float, text: str, context: dict[str, float] | None
) -> None:
    events = [NewEvent(text, time, text, context), NewEvent("i02")]
    assert homes.unpacked(homes.packed(Append(text, events))) == Append(text, events)


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 600), st.binary(max_size=40))),
    st.integers(1, 17),
)
def test_frames_come_whole_however_they_are_cut(
    frames: list[tuple[int, int, bytes]], piece: int
) -> None:
    async def received() -> list[tuple[int, int, bytes]]:
        found: list[tuple[int, int, bytes]] = []
        link = Link(lambda _, *frame: found.append(frame), lambda _: None)
        sent = b"".join(HEAD.pack(n, status, len(body)) + body for n, status, body in frames)
        for at in range(0, len(sent), piece):
            link.data_received(sent[at : at + piece])
        return found

    assert asyncio.run(received()) == frames
    assert LEAVING < 100  # no status of HTTP
