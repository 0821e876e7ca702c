"""How large a machine has to be: computed from what `benchmarks.serving_users` measured.

    python -m benchmarks.serving_capacity
    python -m benchmarks.serving_capacity --users 250000 --events 300 --a-day 50

Prints the table of docs/serving.md for other numbers of users, kept events and events a day; with
`--write` the tables of the page are written again from results/benchmarks/serving-users.json.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from benchmarks.environment import ROOT
from benchmarks.results import OUT_FOLDER, between
from linrec.files.atomic import write_text

FIGURES, PAGE = OUT_FOLDER / "serving-users.json", ROOT / "docs" / "serving.md"
USERS, EVENTS, A_DAY = (10_000, 100_000, 1_000_000, 10_000_000), 100, 20.0
PEAK = 3.0  # times the mean rate of a day
SHARE = 0.7  # of the highest rate that a process should be asked for
DAY = 86_400
COMPACT = 128  # events of a user up to which Redis keeps them in its compact form
NAMES = {"sqlite": "SQLite", "redis": "Redis"}


def stored_bytes(store: dict[str, Any], users: int, events: int) -> float:
    """Of users with so many events that have ids, all with a state."""
    each = store["event_bytes"] + store["id_bytes"]
    if events > COMPACT:
        each = store["long_event_bytes"]
    return users * (store["user_bytes"] + store["state_bytes"] + events * each)


def peak_rate(users: int, a_day: float) -> float:
    """Events a second in the busiest hour."""
    return users * a_day / DAY * PEAK


def processes(store: dict[str, Any], rate: float) -> int:
    """That so many events a second, and as many lists, keep busy for 70 % of the time."""
    highest = {row["kind"]: row["a_second"] for row in store["rows"] if row["connections"] > 1}
    return max(math.ceil((rate / highest["event"] + rate / highest["list"]) / SHARE), 1)


def size(count: float) -> str:
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6)):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}"
    return f"{count / 1000:.3g} kB"


def capacity(
    outcome: dict[str, Any], users: tuple[int, ...] = USERS, events: int = EVENTS,
    a_day: float = A_DAY,
) -> str:  # fmt: skip
    stores = outcome["stores"]
    heads = "".join(
        f" {NAMES[kind]} {'disk' if kind == 'sqlite' else 'memory'} | processes, {NAMES[kind]} |"
        for kind in stores
    )
    lines = [
        f"`python -m benchmarks.serving_capacity`: {events:,} kept events a user, each with an id "
        f"of 16 characters; {a_day:g} events and as many lists a user and day, {PEAK:g} times that "
        f"in the busiest hour; processes busy {SHARE:.0%} of the time then; every user has a "
        "state.", "",
        f"| users | events/s, and lists/s, at most |{heads} memory of the processes |",
        "|" + "---|" * (3 + 2 * len(stores)),
    ]  # fmt: skip
    for number in users:
        rate = peak_rate(number, a_day)
        cells, most = "", 1
        for found in stores.values():
            needed = processes(found, rate)
            most = max(most, needed)
            cells += f" {size(stored_bytes(found, number, events))} | {needed:,} |"
        memory = max(found["server_bytes_after"] for found in stores.values())
        lines.append(f"| {number:,} | {rate:,.1f} |{cells} {size(most * memory)} |")
    return "\n".join(lines) + "\n"


def constants(outcome: dict[str, Any]) -> str:
    """What the table is computed from, and the latencies."""
    lines = [
        f"{outcome['users']:,} users with {outcome['events']:,} events (seed {outcome['seed']}), "
        f"{outcome['items']:,} items, one server process with `--cache-mb 0`, users drawn at "
        "random.", "",
        "| | " + " | ".join(NAMES[kind] for kind in outcome["stores"]) + " |",
        "|---|" + "---|" * len(outcome["stores"]),
    ]  # fmt: skip
    stores = outcome["stores"].values()
    for text, name in (
        ("bytes a user as imported, without states", "bytes_per_user"),
        ("bytes of a user without events", "user_bytes"),
        ("bytes of an event", "event_bytes"),
        ("bytes of the id of an event (16 characters)", "id_bytes"),
        (f"bytes of an event and its id, of more than {COMPACT}", "long_event_bytes"),
        ("bytes of a state, as stored", "state_bytes"),
        ("seconds to import all users (`--data`)", "load_seconds"),
        ("seconds to start again with `--data`", "load_again_seconds"),
    ):
        lines.append(f"| {text} | " + " | ".join(f"{found[name]:,.10g}" for found in stores) + " |")
    lines += [
        "",
        "| store | request | connections | a second | p50 ms | p99 ms |",
        "|" + "---|" * 6,
    ]
    for kind, found in outcome["stores"].items():
        lines += [
            f"| {NAMES[kind]} | {row['kind']} | {row['connections']} | {row['a_second']:,.0f} "
            f"| {row['p50_ms']:.2f} | {row['p99_ms']:.2f} |"
            for row in found["rows"]
        ]
    sources = [
        f"{NAMES[kind]}: `{found['command'].strip()}`, {found['date']}, {found['machine']}, "
        f"commit {found['commit']}."
        for kind, found in outcome["stores"].items()
    ]
    return "\n".join([*lines, "", " ".join(sources)]) + "\n"


def rendered(page: str) -> str:
    outcome = json.loads(FIGURES.read_text("utf-8"))
    return between(between(page, "users", constants(outcome)), "capacity", capacity(outcome))


def render() -> None:
    write_text(PAGE, rendered(PAGE.read_text("utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    parser.add_argument("--events", type=int, default=EVENTS, help="kept of a user")
    parser.add_argument("--a-day", type=float, default=A_DAY, help="events of a user in a day")
    parser.add_argument("--write", action="store_true", help="write the tables of the page again")
    given = parser.parse_args()
    outcome = json.loads(FIGURES.read_text("utf-8"))
    print(capacity(outcome, tuple(given.users), given.events, given.a_day))
    if given.write:
        render()


if __name__ == "__main__":
    main()
