"""The states of a user in SQLite: one per model, the newest two."""

from __future__ import annotations

import sqlite3

from linrec.serving.stores.store import MAX_SNAPSHOTS, Change, model_of


def put_snapshot(
    connection: sqlite3.Connection, change: Change, row: tuple[int, str, int, int]
) -> None:
    """row: number of the user, and version, events and arrivals of the head after the change."""
    assert change.snapshot is not None
    number, version, events, arrived = row
    model = model_of(change.snapshot)
    known = connection.execute(
        "UPDATE snapshots SET version = ?, events = ?, arrived = ?, content = ? "
        "WHERE number = ? AND model = ?",
        (version, events, arrived, change.snapshot, number, model),
    )
    if known.rowcount:
        return
    connection.execute(
        "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)",
        (number, model, version, events, arrived, change.snapshot),
    )
    # of equally new ones, the one that the last commit stored stays
    connection.execute(
        "DELETE FROM snapshots WHERE number = ? AND model IN (SELECT model FROM snapshots "
        "WHERE number = ? AND model != ? ORDER BY arrived DESC, version = ? DESC "
        "LIMIT -1 OFFSET ?)",
        (number, number, model, change.version, MAX_SNAPSHOTS - 1),
    )
