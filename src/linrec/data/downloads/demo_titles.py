"""Names for films that do not exist."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GENRES = (
    "Drama",
    "Comedy",
    "Thriller",
    "Adventure",
    "Romance",
    "Mystery",
    "Science Fiction",
    "Animation",
    "Western",
    "Musical",
    "Documentary",
    "Fantasy",
)

_KIND_WORDS = (
    "Amber Silent Crooked Northern Velvet Paper Hollow Golden Distant Winter Copper Last Broken "
    "Emerald Midnight Wandering Salt Scarlet Quiet Burning Forgotten Glass Restless Painted "
    "Lonely Second Ivory Stolen Tidal Borrowed Wooden Sleeping"
)
_THING_WORDS = (
    "Harbour Lantern Orchard Station Garden Compass River Letter Mountain Theatre Island Bridge "
    "Clockmaker Voyage Meadow Ballroom Archive Lighthouse Carnival Quarry Kingdom Postman Glacier "
    "Aviary Bakery Highway Tower Monsoon Library Ferry Hotel Observatory"
)
_KINDS, _THINGS = _KIND_WORDS.split(), _THING_WORDS.split()
_ROMAN = ("", " II", " III", " IV", " V")


def titles(count: int, series: NDArray[np.int64], rng: np.random.Generator) -> list[str]:
    """A different title for each film; parts of a series share a name and are numbered."""
    pairs = rng.permutation(len(_KINDS) * len(_THINGS))
    names = [_name(int(pairs[at % len(pairs)]), at // len(pairs)) for at in range(count)]
    for films in series:
        base = names[films[0]]
        for part, film in enumerate(films):
            names[film] = base + _ROMAN[part]
    return names


def _name(pair: int, lap: int) -> str:
    """The Amber Harbour, and once all pairs are used, The Amber Harbour Revisited, ... 2, ... 3."""
    name = f"The {_KINDS[pair % len(_KINDS)]} {_THINGS[pair // len(_KINDS)]}"
    return name if not lap else f"{name} Revisited" + (f" {lap}" if lap > 1 else "")
