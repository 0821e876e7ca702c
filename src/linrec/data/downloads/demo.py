"""A made-up film club: embedded data whose next event needs both ends of a long history.

Every film has one of twelve leading genres and a mood, a position on a ring that all genres share.
Every member loves two or three genres for good, and follows one series of films.

What a member watches next, never a film twice:
- most often a film a little further round the ring of moods than the last one, in a loved genre
  but seldom the same one again. The last film tells the mood but not the genre; the whole history
  tells the taste but not the mood: only together do they leave few films to choose from;
- now and then the next part of the series, whose first part was watched in the first few events;
- now and then anything at all, the popular more often (Zipf).

So popularity knows little, the last film alone leaves all genres open, and a model that reads the
whole history can do much better. `DemoClub.chances` is that process itself, the best any model
could do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.downloads.demo_titles import GENRES, titles
from linrec.types import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SERIES_PARTS = 5
SERIES_BEGINS = 5  # the first part is among the first events
SERIES_CHANCE = 0.06
ANYTHING_CHANCE = 0.08
REACH = 5  # how far round the ring the next film may be
STEP_DECAY = 0.6  # how much less likely each further step is
SAME_AGAIN = 0.2  # how much less a genre is liked right after a film of it
OTHER_GENRES = 0.08  # what a member's taste leaves for all the genres not loved
SHORTEST, LONGEST, MEDIAN, SPREAD = 40, 300, 82.0, 0.45
NEVER = -1

MIN_ITEMS = len(GENRES) * SERIES_PARTS * 2
_FIRST_DAY, _LAST_DAY = 1_514_764_800, 1_640_995_200  # 2018 to 2021, in unix seconds
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class DemoClub:
    """The films and members, and the chances of what a member watches next."""

    genre: Ints  # [items]
    mood: Ints  # [items]
    at: Ints  # [genres, moods], the film there
    popularity: Floats  # [items], sums to 1
    parts: Ints  # [series, SERIES_PARTS], films
    taste: Floats  # [users, genres], sums to 1
    follows: Ints  # [users], series

    def near(self, users: Ints, last: Ints) -> tuple[Ints, Floats]:
        """Films a little further round the ring, with the chance of each before films seen."""
        steps = np.arange(1, REACH + 1)
        moods = (self.mood[last][:, None] + steps) % self.at.shape[1]
        films = self.at[:, moods].transpose(1, 0, 2)  # [rows, genres, REACH]
        taste = self.taste[users]
        taste[np.arange(len(users)), self.genre[last]] *= SAME_AGAIN
        weight = taste[:, :, None] * STEP_DECAY ** (steps - 1) * self.popularity[films]
        return films.reshape(len(users), -1), weight.reshape(len(users), -1)

    def next_part(self, users: Ints, seen: NDArray[np.bool_]) -> Ints:
        """The first unseen part of each member's series, NEVER where all are seen."""
        parts = self.parts[self.follows[users]]
        unseen = ~np.take_along_axis(seen, parts, axis=1)
        part = np.take_along_axis(parts, unseen.argmax(1)[:, None], axis=1)[:, 0]
        return np.where(unseen.any(1), part, NEVER)

    def chances(self, users: Ints, last: Ints, seen: NDArray[np.bool_]) -> Floats:
        """[rows, items]: the chance of each film to be next, given all that made the data."""
        films, weight = self.near(users, last)
        rows = np.arange(len(users))
        near = np.zeros(seen.shape)
        near[rows[:, None], films] = weight
        near[seen] = 0
        anything = np.where(seen, 0, self.popularity)
        near = np.where(near.any(1, keepdims=True), near, anything)
        chance = (1 - SERIES_CHANCE - ANYTHING_CHANCE) * near / near.sum(1, keepdims=True)
        chance += ANYTHING_CHANCE * anything / anything.sum(1, keepdims=True)
        part = self.next_part(users, seen)
        follows = part != NEVER
        chance[~follows] /= 1 - SERIES_CHANCE
        chance[rows[follows], part[follows]] += SERIES_CHANCE
        return np.asarray(chance)


def demo_events(
    users: int = 3000, items: int = 600, seed: int = 7
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Events (user, item, time) in the order of time, and items (item, title, genre, year)."""
    if users < 1 or items < MIN_ITEMS:
        raise InputError(
            f"the demo cannot have {users} users and {items} items; "
            f"give at least 1 user and {MIN_ITEMS} items"
        )
    rng = np.random.default_rng(seed)
    club = make_club(users, items, rng)
    watched, lengths = watch(club, rng)
    return _event_frame(watched, lengths, rng), _item_frame(club, rng)


def make_club(users: int, items: int, rng: np.random.Generator) -> DemoClub:
    genres = len(GENRES)
    moods = -(-items // genres)
    positions = rng.permutation(items)  # so that an item's number carries no information
    genre, mood = positions % genres, positions // genres
    at = np.empty((genres, moods), dtype=np.int64)
    at[genre, mood] = np.arange(items)
    gaps = np.arange(items, genres * moods)  # an uneven last round borrows the films of the first
    at[gaps % genres, gaps // genres] = at[gaps % genres, 0]
    popularity = 1.0 / (rng.permutation(items) + 10.0)
    parts = np.concatenate([_series(at[one], rng) for one in range(genres)])
    taste = _taste(users, rng)
    follows = rng.integers(len(parts), size=users)
    return DemoClub(genre, mood, at, popularity / popularity.sum(), parts, taste, follows)


def watch(club: DemoClub, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """All members' histories, [users, longest], step by step for all members at once."""
    users, items = len(club.taste), len(club.genre)
    lengths = np.exp(rng.normal(np.log(MEDIAN), SPREAD, users)).astype(np.int64)
    lengths = np.clip(lengths, SHORTEST, min(LONGEST, items // 2))
    order = np.argsort(-lengths, kind="stable")  # so that whoever still watches is a prefix
    watched = np.full((users, lengths.max()), NEVER, dtype=np.int64)
    seen = np.zeros((users, items), dtype=bool)
    begins = rng.integers(SERIES_BEGINS, size=users)
    for step in range(lengths.max()):
        active = order[: np.searchsorted(-lengths[order], -step)]
        last = watched[active, step - 1] if step else rng.integers(items, size=len(active))
        film = _choose(club, active, last, seen[active], rng)
        first_part = club.parts[club.follows[active], 0]
        starts = (begins[active] == step) & ~seen[active, first_part]
        film = np.where(starts, first_part, film)
        watched[active, step] = film
        seen[active, film] = True
    return watched, lengths


def _choose(
    club: DemoClub, users: Ints, last: Ints, seen: NDArray[np.bool_], rng: np.random.Generator
) -> Ints:
    """Draw from `DemoClub.chances` without writing them all out."""
    films, weight = club.near(users, last)
    weight[np.take_along_axis(seen, films, axis=1)] = 0
    total = weight.cumsum(1)
    drawn = (total < rng.random((len(users), 1)) * total[:, -1:]).sum(1)
    film = np.take_along_axis(films, np.minimum(drawn, films.shape[1] - 1)[:, None], axis=1)[:, 0]
    kind = rng.random(len(users))
    part = club.next_part(users, seen)
    series = (kind < SERIES_CHANCE) & (part != NEVER)
    # the chance of a series that is over goes to the other two in proportion
    bound = np.where(part == NEVER, ANYTHING_CHANCE / (1 - SERIES_CHANCE), ANYTHING_CHANCE)
    anything = ~series & (kind > 1 - bound) | (total[:, -1] == 0)
    film = np.where(series, part, film)
    film[anything] = _anything(club, seen[anything], rng)
    return film


def _anything(club: DemoClub, seen: NDArray[np.bool_], rng: np.random.Generator) -> Ints:
    total = np.where(seen, 0, club.popularity).cumsum(1)
    return np.asarray((total <= rng.random((len(seen), 1)) * total[:, -1:]).sum(1))


def _series(films: Ints, rng: np.random.Generator) -> Ints:
    """A third of a genre's films make up series, scattered over the moods."""
    count = max(len(np.unique(films)) // (3 * SERIES_PARTS), 1)
    return rng.permutation(np.unique(films))[: count * SERIES_PARTS].reshape(count, SERIES_PARTS)


def _taste(users: int, rng: np.random.Generator) -> Floats:
    """Two or three loved genres, some genres more often loved than others."""
    genres = len(GENRES)
    fame = 1.0 / (np.arange(genres) + 4.0)
    rank = np.argsort(np.argsort(rng.exponential(size=(users, genres)) / fame, axis=1), axis=1)
    loved = rank < rng.integers(2, 4, size=(users, 1))
    liking = np.where(loved, rng.uniform(0.6, 1.0, size=loved.shape), 0)
    liking /= liking.sum(1, keepdims=True)
    return np.asarray((1 - OTHER_GENRES) * liking + OTHER_GENRES / genres)


def _event_frame(watched: Ints, lengths: Ints, rng: np.random.Generator) -> pl.DataFrame:
    user, step = np.nonzero(watched != NEVER)
    pause = rng.lognormal(0.0, 1.0, size=watched.shape) * _DAY
    start = rng.uniform(_FIRST_DAY, _LAST_DAY, size=(len(watched), 1))
    when = np.floor(start + np.cumsum(pause + 60.0, axis=1)).astype(np.int64)
    width = len(str(len(lengths)))
    frame = pl.DataFrame({"user": user, "item": watched[user, step], "time": when[user, step]})
    return frame.sort("time", maintain_order=True).with_columns(
        _named("user", "member-", width), _named("item", "film-", 3)
    )


def _item_frame(club: DemoClub, rng: np.random.Generator) -> pl.DataFrame:
    items = len(club.genre)
    second = rng.integers(len(GENRES), size=items)
    has_second = (rng.random(items) < 0.3) & (second != club.genre)
    genres = [
        [GENRES[one], GENRES[other]] if both else [GENRES[one]]
        for one, other, both in zip(club.genre, second, has_second, strict=True)
    ]
    year = rng.integers(1950, 2001, size=items)
    year[club.parts] = year[club.parts[:, :1]] + np.arange(0, 4 * SERIES_PARTS, 4)
    frame = pl.DataFrame({"item": np.arange(items), "genre": genres, "year": year})
    named = frame.with_columns(
        _named("item", "film-", 3), pl.Series("title", titles(items, club.parts, rng))
    )
    return named.select("item", "title", "genre", "year")


def _named(column: str, prefix: str, width: int) -> pl.Expr:
    number = (pl.col(column) + 1).cast(pl.String).str.zfill(width)
    return pl.concat_str(pl.lit(prefix), number).alias(column)
