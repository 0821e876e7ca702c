"""The one list of baselines."""

from __future__ import annotations

from linrec.baselines.baseline import Baseline
from linrec.baselines.ease import EASE
from linrec.baselines.item_knn import ItemKNN
from linrec.baselines.last_item import LastItem
from linrec.baselines.personal import Personal, PersonalDecay
from linrec.baselines.personal_last_item import PersonalLastItem
from linrec.baselines.popularity import Popularity

BASELINES: dict[str, type[Baseline]] = {
    "popularity": Popularity,
    "last-item": LastItem,
    "personal": Personal,
    "personal-decay": PersonalDecay,
    "personal-last-item": PersonalLastItem,
    "item-knn": ItemKNN,
    "ease": EASE,
}
