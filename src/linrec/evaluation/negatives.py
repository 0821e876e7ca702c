"""The candidates of the sampled protocols: drawn once and the same for every model.

`pop100`: 100 draws with replacement, proportional to an item's count over all events but each
user's first; a draw that equals the target is drawn again, and nothing else is excluded. `uni100`:
the same with every item equally likely.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.splits import EVENTS_TO_SPLIT, Holdout, Part
from linrec.data.dataset.store import SequenceStore
from linrec.files.atomic import write_bytes
from linrec.types import PAD, InputError

Protocol = Literal["full", "pop100", "uni100"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

DRAWS = 100
_CHUNK_USERS = 65_536
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def check_protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise InputError(f"unknown protocol {name!r}; choose from {', '.join(PROTOCOLS)}")
    return name


def item_weights(store: SequenceStore, protocol: Protocol) -> IntArray:
    """The sampling weight of each item, [n_items + 1]."""
    if protocol == "uni100":
        weights = np.ones(store.n_items + 1, np.int64)
        weights[PAD] = 0
        return weights
    if protocol == "pop100":
        firsts = store.items[store.offsets[:-1][np.diff(store.offsets) > 0]]
        return store.popularity() - np.bincount(firsts, minlength=store.n_items + 1)
    raise InputError(f"the protocol {protocol!r} draws no negatives; choose pop100 or uni100")


def draw_negatives(
    store: SequenceStore, holdout: Holdout, protocol: Protocol, *, part: Part, seed: int
) -> NDArray[np.int32]:
    """Draw 100 candidates for each target of the holdout, [T, 100].

    They depend on the dataset, the part, the protocol, the seed, the user and, where a user has
    several targets, its position in the history; not on what else is evaluated.
    """
    ends = np.cumsum(item_weights(store, protocol))
    entropy = _entropy(store.sequence_fingerprint, part, protocol, seed)
    if holdout.owners is not None:
        return _draw_by_position(holdout, ends, entropy)
    rng = np.random.default_rng(entropy)
    drawn = np.empty((len(holdout), DRAWS), np.int32)
    for start in range(0, store.n_users, _CHUNK_USERS):
        stop = min(start + _CHUNK_USERS, store.n_users)
        chance = rng.random((stop - start, DRAWS))
        rows = np.flatnonzero((holdout.users >= start) & (holdout.users < stop))
        drawn[rows] = _pick(ends, chance[holdout.users[rows] - start], holdout.targets[rows])
    return drawn


def _draw_by_position(holdout: Holdout, ends: IntArray, entropy: int) -> NDArray[np.int32]:
    """By numbers that are hashes of user, position and draw, so that each target has its own."""
    index, row = holdout.targets_of(np.arange(len(holdout)))
    starts = np.cumsum(holdout.target_counts) - holdout.target_counts
    position = holdout.histories.lengths[row] + index - starts[row]
    drawn = np.empty((len(index), DRAWS), np.int32)
    for start in range(0, len(index), _CHUNK_USERS):
        some = slice(start, start + _CHUNK_USERS)
        chance = _hashed(entropy, holdout.users[row[some]], position[some])
        drawn[some] = _pick(ends, chance, holdout.targets[some])
    return drawn


def _hashed(entropy: int, users: IntArray, positions: IntArray) -> NDArray[np.float64]:
    """Numbers in [0, 1) for each user and position, [T, 100], by the finaliser of SplitMix64."""
    key = np.uint64(entropy % 2**64)
    place = (users.astype(np.uint64) << np.uint64(32)) + positions.astype(np.uint64)
    mixed = _mix(place ^ key)[:, None] + np.arange(DRAWS, dtype=np.uint64) * _GOLDEN
    return np.asarray((_mix(mixed) >> np.uint64(11)) * 2.0**-53, np.float64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def load_or_draw(
    store: SequenceStore, holdout: Holdout, protocol: Protocol, *, part: Part, seed: int
) -> NDArray[np.int32]:
    """The candidates saved beside the dataset; drawn, and saved if possible, if there are none."""
    if store.folder is None or not _leaves_one_out(store, holdout, part):
        return draw_negatives(store, holdout, protocol, part=part, seed=seed)
    path = store.folder / "negatives" / f"{protocol}-{part}-seed{seed}.npy"
    saved = _load(path, holdout, store.n_items)
    if saved is not None:
        return saved
    drawn = draw_negatives(store, holdout, protocol, part=part, seed=seed)
    content = io.BytesIO()
    np.save(content, drawn, allow_pickle=False)
    # a read-only dataset can still be evaluated: the draw is repeatable
    with contextlib.suppress(InputError):
        write_bytes(path, content.getvalue())
    return drawn


def _leaves_one_out(store: SequenceStore, holdout: Holdout, part: Part) -> bool:
    """Whether it is one event of every user who has enough, of which the draw is kept."""
    users = np.flatnonzero(np.diff(store.offsets) >= EVENTS_TO_SPLIT)
    last = store.offsets[1:][users] - (1 if part == "test" else 2)
    return (
        holdout.counts is None
        and np.array_equal(holdout.users, users)
        and np.array_equal(holdout.histories.ends, last)
    )


def _pick(ends: IntArray, chance: NDArray[np.float64], targets: IntArray) -> NDArray[np.int32]:
    """The item in whose range of the cumulative weights each number in [0, 1) falls.

    Redrawing the target is the same as drawing without its weight: its range is skipped, and each
    draw needs only one number.
    """
    before, upto = ends[targets - 1][:, None], ends[targets][:, None]
    others = ends[-1] - (upto - before)
    if (others < 1).any():
        raise InputError("no item but the target can be drawn; sampled protocols need two or more")
    # rounding may lift the product of a chance just below 1 to the bound itself
    at = np.minimum((chance * others).astype(np.int64), others - 1)
    at += np.where(at >= before, upto - before, 0)
    return np.asarray(np.searchsorted(ends, at, side="right"), dtype=np.int32)


def _entropy(fingerprint: str, part: Part, protocol: Protocol, seed: int) -> int:
    text = f"{fingerprint} {part} {protocol} {seed}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def _load(path: Path, holdout: Holdout, n_items: int) -> NDArray[np.int32] | None:
    """A saved draw, or None if it is missing, damaged, or of another holdout."""
    try:
        saved: NDArray[np.int32] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(saved, np.ndarray) or saved.dtype != np.int32:
        return None
    if saved.shape != (len(holdout), DRAWS):
        return None
    possible = saved.min(initial=1) > PAD and saved.max(initial=1) <= n_items
    return saved if possible and not (saved == holdout.targets[:, None]).any() else None
