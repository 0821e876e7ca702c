"""Which column has which role: guessed from the usual names, or set by the caller."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from linrec.types import InputError, argument

FILE_ORDER = "order"
"""Instead of a time column: the rows are already in the order of time."""

# Names are compared without case, blanks and punctuation. Of two columns that match, the one of the
# earlier group is taken; two of one group are ambiguous, and the caller has to choose.
USUAL: dict[str, tuple[tuple[str, ...], ...]] = {
    "user": (
        ("user", "userid", "useridx", "uid", "usr"),
        ("customer", "customerid", "visitor", "visitorid", "member", "memberid", "shopperid"),
        ("household", "householdid", "householdkey", "panelistid", "personid", "customerkey"),
        ("reviewer", "reviewerid", "account", "accountid", "client", "clientid", "buyerid"),
        ("playlistid", "sessionid", "session"),
    ),
    "item": (
        ("item", "itemid", "itemidx", "iid"),
        ("movieid", "productid", "product", "trackid", "songid", "articleid", "newsid", "bookid"),
        ("businessid", "gmapid", "venueid", "venue", "placeid", "place", "poi", "poiid"),
        ("artistid", "videoid", "contentid", "adid", "gameid", "recipeid", "locationid"),
        ("stockcode", "productcode", "itemcode", "articlecode", "productkey", "hashtag"),
        ("parentasin",),
        ("asin", "isbn", "sku", "ean", "upc", "gtin"),
    ),
    "time": (
        ("timestamp", "unixtime", "unixreviewtime", "unixtimestamp", "ts", "eventtime"),
        ("datetime", "createdat", "eventtimestamp", "utctimestamp", "occurredat"),
        ("transactiontimestamp", "transactiontime", "ordertimestamp", "purchasetime", "clicktime"),
        ("time", "date", "tdat", "day"),
        ("reviewtime", "reviewdate", "orderdate", "playedat", "watchedat"),
        ("eventdate", "invoicedate", "transactiondate", "purchasedate", "visitdate"),
    ),
    "rating": (
        ("rating", "ratings"),
        ("stars", "score", "overall", "reviewscore", "ratingscore"),
    ),
}


def choose_columns(
    names: Sequence[str], given: Mapping[str, str | None], roles: Sequence[str], source: str
) -> dict[str, str]:
    """The source's column for each role: the given one where there is one, else the usual one."""
    chosen: dict[str, str] = {}
    for role in roles:
        name = given.get(role)
        taken = set(chosen.values()) | {other for other in given.values() if other}
        chosen[role] = (
            guess_column(role, [c for c in names if c not in taken], names, source)
            if name is None
            else find_column(role, name, names, source)
        )
    _refuse_shared(chosen, source)
    return chosen


def find_column(role: str, name: str, names: Sequence[str], source: str) -> str:
    """The column of that name; case is ignored where only one column matches."""
    if name in names:
        return name
    alike = [column for column in names if column.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise InputError(
        f"{source} has no column {name!r}; its columns are {_list(names)}; "
        f"set {argument(role)} to one of them"
    )


def guess_column(role: str, free: Sequence[str], names: Sequence[str], source: str) -> str:
    for group in USUAL[role]:
        matches = [column for column in free if _bare(column) in group]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise InputError(
                f"{source} has more than one column that could be the {role} "
                f"({_list(matches)}); set {argument(role)} to the right one"
            )
    usual = {name for group in USUAL[role] for name in group}
    taken = [column for column in names if column not in free and _bare(column) in usual]
    besides = f" besides {_list(taken)}, which has another role" if taken else ""
    raise InputError(
        f"{source} has no column that is plainly the {role}{besides}; its columns are "
        f"{_list(names)}; "
        f"set {argument(role)} to the right one"
        + (f", or {argument(role, FILE_ORDER)} for the order of the rows" if role == "time" else "")
    )


def _refuse_shared(chosen: Mapping[str, str], source: str) -> None:
    roles: dict[str, str] = {}
    for role, column in chosen.items():
        if column in roles:
            raise InputError(
                f"{source}: the column {column!r} cannot be both the {roles[column]} and the "
                f"{role}; set {argument(roles[column])} and {argument(role)} to different columns"
            )
        roles[column] = role


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _list(columns: Sequence[str]) -> str:
    shown = [repr(column[:60]) for column in columns[:30]]
    rest = len(columns) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
