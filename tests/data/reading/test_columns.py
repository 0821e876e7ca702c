from __future__ import annotations

import pytest

from linrec.data.reading.columns import choose_columns
from linrec.types import InputError

ROLES = ("user", "item", "time")


def choose(found: list[str], roles: tuple[str, ...] = ROLES, **given: str) -> list[str]:
    return list(choose_columns(found, given, roles, "log.csv").values())


@pytest.mark.parametrize(
    "found",
    [
        ["user_id", "item_id", "timestamp"],
        ["userId", "movieId", "timestamp"],
        ["USER", "Item", "Time"],
        ["visitorid", "itemid", "timestamp"],
        ["customer_id", "product_id", "created_at"],
        ["reviewerID", "asin", "unixReviewTime"],
        ["User-ID", "ISBN", "date"],
        ["session_id", "track_id", "ts"],
        ["user_id", "business_id", "date"],
        ["uid", "sku", "datetime"],
        ["household_id", "product_id", "transaction_timestamp"],
        ["Customer ID", "StockCode", "InvoiceDate"],
        ["visitorid", "itemid", "eventdate"],
    ],
)
def test_usual_names(found: list[str]) -> None:
    assert choose(["noise", *reversed(found)]) == found


def test_the_surer_name_wins() -> None:
    amazon = ["rating", "title", "text", "asin", "parent_asin", "user_id", "timestamp"]
    assert choose(amazon, (*ROLES, "rating")) == ["user_id", "parent_asin", "timestamp", "rating"]
    assert choose(["session_id", "user", "item", "ts", "date"]) == ["user", "item", "ts"]


def test_names_can_be_set_and_case_is_forgiven() -> None:
    found = ["buyer", "Thing", "at", "user_id"]
    assert choose(found, user="buyer", item="thing", time="AT") == ["buyer", "Thing", "at"]


def test_a_column_that_was_given_a_role_is_not_guessed_for_another() -> None:
    assert choose(["user", "uid", "item", "time"], item="uid") == ["user", "uid", "time"]


@pytest.mark.parametrize(
    ("found", "given", "sentence"),
    [
        (
            ["user", "user_id", "item", "time"],
            {},
            r"could be the user \('user', 'user_id'\); set user= to",
        ),
        (["user", "item", "date", "time"], {}, "more than one column that could be the time"),
        (
            ["user", "item"],
            {},
            "plainly the time; its columns are 'user', 'item'; set time= to .*, or time=order",
        ),
        (["user", "item", "time"], {"user": "buyer"}, "no column 'buyer'; its columns are"),
        (["user", "item", "time"], {"user": "item", "item": "item"}, "both the user and the item"),
        (["a", "A", "item", "time"], {"user": "b"}, "no column 'b'"),
        (
            ["user", "item", "time"],
            {"group": "user"},
            "no column that is plainly the user besides 'user', which has another role; its col",
        ),
    ],
)
def test_doubts_are_the_callers_to_settle(
    found: list[str], given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        choose(found, **given)


def test_a_wide_file_is_not_listed_whole() -> None:
    with pytest.raises(InputError, match="and 70 more"):
        choose([f"c{n}" for n in range(100)])
