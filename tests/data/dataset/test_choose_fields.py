"""Which features a model reads: by name, by a word of it, or all that tell something."""

from __future__ import annotations

import polars as pl
import pytest

from linrec.data.dataset.item_features import ITEM, Field, choose_fields
from linrec.data.dataset.store import Feature
from linrec.types import InputError

FEATURES = (
    Feature("title", "text"),
    Feature("genre", "multi"),
    Feature("release_year", "categorical"),
    Feature("price", "numeric"),
)
TABLE = pl.DataFrame(
    {
        ITEM: [1, 2, 3],
        "title": ["A", "B", "C"],
        "genre": [["x"], ["x", "y"], ["y"]],
        "release_year": ["1999", "1999", None],
        "price": [1.0, 2.0, 3.0],
    }
)


def names(name: list[str] | None) -> list[str]:
    return [field.name for field in choose_fields(TABLE, FEATURES, name)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, ["genre", "release_year", "price"]),
        (["price", "genre"], ["price", "genre"]),
        (["genre", "price", "genre"], ["genre", "price"]),
        (["year"], ["release_year"]),
        (["genres"], ["genre"]),
        (["Genre"], ["genre"]),
        (["year", "release_year"], ["release_year"]),
        (["item", "price"], ["item", "price"]),
    ],
)
def test_fields_are_chosen_by_name(name: list[str] | None, expected: list[str]) -> None:
    assert names(name) == expected


def test_the_kinds_are_those_of_the_dataset() -> None:
    name = [*(feature.name for feature in FEATURES[1:]), ITEM]
    kinds = [field.kind for field in choose_fields(TABLE, FEATURES, name)]
    assert kinds == ["multi", "categorical", "numeric", "id"]


def test_an_exact_name_is_never_ambiguous() -> None:
    features = [Feature("year", "categorical"), Feature("release_year", "categorical")]
    table = TABLE.with_columns(year=pl.Series(["1", "1", "2"]))
    assert [field.name for field in choose_fields(table, features, ["year"])] == ["year"]


IDLE = pl.DataFrame(
    {
        ITEM: [1, 2, 3],
        "sku": ["a", "b", "c"],
        "const": [7.0, 7.0, 7.0],
        "none": pl.Series([None, [], []], dtype=pl.List(pl.String)),
        "kind": ["k", "k", None],
    }
)
IDLE_KINDS = (Feature("sku", "categorical"), Feature("const", "numeric"), Feature("none", "multi"))


@pytest.mark.parametrize("feature", IDLE_KINDS, ids=lambda feature: feature.name)
def test_a_feature_that_tells_nothing_is_refused_by_name_and_else_left_out(
    feature: Feature,
) -> None:
    features = [feature, Feature("kind", "categorical")]
    with pytest.raises(InputError, match=f"{feature.name} tells no item from another.*leave it"):
        choose_fields(IDLE, features, [feature.name])
    messages: list[str] = []
    assert [field.name for field in choose_fields(IDLE, features, None, messages.append)] == [
        "kind"
    ]
    assert len(messages) == 1
    assert f"the feature {feature.name} tells no item from another" in messages[0]
    (only,) = choose_fields(IDLE, [feature], None)
    assert only.kind == "id"


def refusal(features: tuple[Feature, ...] | list[Feature], name: str) -> str:
    """One sentence; the table is not looked at before the names are known."""
    with pytest.raises(InputError) as refused:
        choose_fields(TABLE, features, [name])
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_an_unknown_name_is_refused_with_the_choices() -> None:
    message = refusal(FEATURES, "director")
    assert message == (
        "'director' is not a feature of the dataset; choose from genre, release_year, price, item"
    )


def test_an_ambiguous_name_is_refused_with_the_choices() -> None:
    features = [Feature("release_year", "categorical"), Feature("death_year", "categorical")]
    message = refusal(features, "year")
    assert message == "'year' fits several features; choose from release_year, death_year, item"


def test_text_is_refused_with_the_choices() -> None:
    message = refusal(FEATURES, "title")
    assert message.startswith("title is text")
    assert message.endswith("choose from genre, release_year, price, item")


def test_text_is_not_mistaken_for_a_feature_that_shares_a_word() -> None:
    features = [Feature("title", "text"), Feature("title_language", "categorical")]
    assert "title is text" in refusal(features, "title")


def test_a_name_is_not_found_by_half_of_its_words() -> None:
    """A request for release_country does not match release_year."""
    assert "is not a feature" in refusal(FEATURES, "release_country")


@pytest.mark.parametrize("name", ["-", "жанр"])
def test_a_name_without_latin_letters_does_not_fit_everything(name: str) -> None:
    assert "is not a feature" in refusal([Feature("genre", "multi")], name)


@pytest.mark.parametrize("features", [(), (Feature("title", "text"),)])
def test_nothing_to_learn_from_leaves_the_id(features: tuple[Feature, ...]) -> None:
    assert choose_fields(TABLE, features, None) == (Field(ITEM, "id", items=3),)
    assert choose_fields(TABLE, features, [ITEM]) == (Field(ITEM, "id", items=3),)


def test_a_dataset_without_features_says_how_to_add_them() -> None:
    message = refusal((), "genre")
    assert "no feature 'genre' nor any other" in message
    assert "prepare it again with items= set to a file" in message
