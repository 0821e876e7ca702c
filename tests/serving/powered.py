"""The process whose power is cut: appends by several threads, deletions, acknowledgements.

    python -m tests.serving.powered RUN FOLDER SYNCHRONOUS

Each thread has a user of its own. What it was told is written to FOLDER/acknowledged, one line per
step: the user and the id of the event, or "forgetting" and "forgotten".
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from pathlib import Path

from linrec.serving import Engine, NewEvent
from linrec.serving.stores import SQLiteStore
from linrec.serving.stores.sqlite_connections import WAIT_SECONDS

USERS, EVENTS, FORGET_EVERY = 4, 90, 40


class Store(SQLiteStore):
    synchronous = "FULL"
    copy_after = 30  # rows, so that it happens often

    def _open(self, timeout: float = WAIT_SECONDS) -> sqlite3.Connection:
        opened = super()._open(timeout)
        if self.synchronous != "FULL":
            opened.execute(f"PRAGMA synchronous={self.synchronous}")
        opened.execute("PRAGMA wal_autocheckpoint=250")  # pages
        return opened


def send(engine: Engine, user: str, out: int) -> None:
    def say(what: str) -> None:
        os.write(out, f"{user} {what}\n".encode())

    for number in range(EVENTS):
        engine.append(user, [NewEvent(f"i{number % 16:02d}", float(number), f"e{number}")])
        say(f"e{number}")
        if user == "user-0" and number % FORGET_EVERY == FORGET_EVERY - 1:
            say("forgetting")
            engine.forget(user)
            say("forgotten")


def main() -> None:
    run, folder, Store.synchronous = sys.argv[1:]
    out = os.open(Path(folder) / "acknowledged", os.O_WRONLY | os.O_CREAT, 0o600)
    engine = Engine(Path(run), Store(Path(folder) / "users.sqlite"))
    threads = [threading.Thread(target=send, args=(engine, f"user-{n}", out)) for n in range(USERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.close()


if __name__ == "__main__":
    main()
