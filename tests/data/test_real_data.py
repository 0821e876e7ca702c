"""The public datasets, with the figures that their provenance files give."""

from __future__ import annotations

from pathlib import Path

import pytest

from linrec.data.preparing.prepare import prepare

COUNTS = {
    "ml-1m": (6040, 3706, 1_000_209),
    "gowalla": (29_858, 40_981, 1_027_370),
    "gowalla-checkins": (8685, 13_812, 507_197),
    "foursquare-4c": (20_211, 29_531, 1_260_764),
    "ml-latest-small": (610, 9724, 100_836),
}
LENGTHS = {
    "ml-1m": (165.6, 96, 400, 2314),
    "gowalla": (34.4, 20, 67, 1014),
    "gowalla-checkins": (58.4, 27, 126, 1480),
    "foursquare-4c": (62.4, 30, 151, 4069),
    "ml-latest-small": (165.3, 70.5, 403, 2698),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_counts_and_lengths(shared_data: Path, tmp_path: Path, name: str) -> None:
    store = prepare(shared_data / name / f"{name}.inter.gz", tmp_path / "data")
    assert (store.n_users, store.n_items, store.n_events) == COUNTS[name]
    mean, median, p90, longest = LENGTHS[name]
    lengths = store.summary["lengths"]
    assert round(lengths["mean"], 1) == mean
    assert lengths["median"] == median
    assert lengths["p90"] == p90
    assert lengths["max"] == longest


@pytest.mark.slow
def test_ml_1m_as_most_papers_have_it(shared_data: Path) -> None:
    store = prepare(shared_data / "ml-1m" / "ml-1m.inter.gz", min_item_events=5)
    assert (store.n_users, store.n_items, store.n_events) == (6040, 3416, 999_611)
    first = store.sequences()[int(store.users.index_of([1])[0])][:5]
    assert store.catalogue.ids_of(first).to_list() == [3186, 1270, 1721, 1022, 2340]
    assert store.item_table.row(0, named=True) == {
        "item": 3186,
        "title": "Girl, Interrupted",
        "release_year": "1999",
        "genre": ["Drama"],
    }
    assert store.summary["items_without_features"] == 0
    assert store.summary["tied_share"] == pytest.approx(0.532, abs=0.001)
