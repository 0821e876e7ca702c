"""The statistics of a dataset in words, for a terminal and for reports."""

from __future__ import annotations

from datetime import datetime, timezone

from linrec.data.dataset.store import SequenceStore

Rows = list[tuple[str, str]]

# numbers in between are taken for unix seconds: from 1973 to 5138
_UNIX_SECONDS = (1e8, 1e11)


def statistics(store: SequenceStore) -> Rows:
    """Names and values: counts, lengths, times, and where the events come from."""
    return [row for section in sections(store) for row in section]


def sections(store: SequenceStore) -> tuple[Rows, Rows, Rows]:
    """The same in three groups."""
    return _counts(store), _lengths(store), _origin(store)


def _counts(store: SequenceStore) -> Rows:
    summary, repeats = store.full_summary, store.repeats
    return [
        ("users", f"{summary['users']:,}"),
        ("items", f"{summary['items']:,}"),
        ("events", f"{summary['events']:,}"),
        ("sparsity", f"{summary['sparsity']:.2f} %"),
        ("events of items the user had before", f"{repeats.events:.1%}"),
        ("last events of items the user had before", f"{repeats.last:.1%}"),
    ]


def _lengths(store: SequenceStore) -> Rows:
    lengths = store.summary["lengths"]
    spread = ("min", "median", "p90", "p99", "max")
    return [
        ("events per user, mean", f"{lengths['mean']:.1f}"),
        (" / ".join(spread), " / ".join(f"{lengths[name]:,.10g}" for name in spread)),
        ("neighbours with equal times", f"{store.summary['tied_share']:.1%}"),
        *_ties(store),
        ("time", f"{_moment(store, 'first')} to {_moment(store, 'last')}"),
        ("times are", f"{store.times_kind.kind} ({store.times_kind.reason})"),
    ]


def _ties(store: SequenceStore) -> Rows:
    """How events with equal times are ordered; nothing of datasets of early versions."""
    summary, rows = store.summary, []
    if summary.get("ties") == "shuffle":
        rows.append(("their order", f"shuffled (seed {summary['ties_seed']})"))
    elif summary.get("ties_ascending") is not None:
        rows.append(("their order", f"of the file, {summary['ties_ascending']:.0%} by item id"))
    if summary.get("baskets") is not None:
        rows.append(("baskets", f"{summary['baskets']:,}"))
    return rows


def _origin(store: SequenceStore) -> Rows:
    source = store.summary["source"]
    guessed = source["columns_guessed"]
    columns = ", ".join(
        f"{role} = {name}" + (" (guessed)" if role in guessed else "")
        for role, name in source["columns"].items()
    )
    rows = [("source", f"{source['name']} ({source['format']})"), ("columns", columns)]
    skipped = sum(source["skipped"].values())
    if skipped:
        rows.append(("rows skipped", f"{skipped:,} of {skipped + source['events_read']:,}"))
    for name, value in source["filters"].items():
        removed = source["removed"].get(name, 0)
        rows.append((f"filter {name} = {value}", f"removed {removed:,} events"))
    if store.features:
        kinds = ", ".join(f"{feature.name} ({feature.kind})" for feature in store.features)
        rows.append(("item features", kinds))
    if store.context:
        kinds = ", ".join(f"{column.name} ({column.described})" for column in store.context)
        rows.append(("context of events", kinds))
    if store.item_vectors is not None:
        vectors = store.summary["vectors"]
        without = f"{vectors['items_without_events']:,} items have no events"
        rows.append(("item vectors", f"of width {vectors['width']:,}; {without}"))
    rows.append(("fingerprint", store.fingerprint))
    return rows


def _moment(store: SequenceStore, which: str) -> str:
    value = float(store.summary["time"][which])
    last = float(store.summary["time"]["last"])
    if _UNIX_SECONDS[0] <= last < _UNIX_SECONDS[1] and abs(value) < _UNIX_SECONDS[1]:
        return datetime.fromtimestamp(value, tz=timezone.utc).strftime("%Y-%m-%d")
    return f"{value:,.10g}"
