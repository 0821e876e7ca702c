"""A run in memory, as the engine uses it: made once, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from linrec.data.dataset.gaps import read_events
from linrec.data.dataset.sequences import Sequences
from linrec.files.guard import reading
from linrec.runs.run import Run
from linrec.serving.ann import AnnIndex
from linrec.serving.snapshot import FINGERPRINT, Indices, Origin, Snapshot, StateCodec, pack, unpack
from linrec.serving.stores import Head
from linrec.types import PAD, InputError, argument

SNAPSHOT_FORMAT = b"2"
# events advanced at once: bounds the memory of a long history, and the padding of a short one
STRETCH = 256


class ServedModel:
    """Encodes and advances users; knows the items by their ids as text."""

    def __init__(self, run: str | Path, ann_from: int | None = None) -> None:
        """ann_from: items from which on they are searched approximately."""
        self.run = Path(run)
        self.fingerprint = fingerprint_of(self.run)
        opened = Run.open(self.run)
        self.description, catalogue = opened.description, opened.catalogue
        self._model = opened.load_model().requires_grad_(False)
        if self._model.config.time_gaps:
            raise InputError(
                f"the model of {self.run} reads times, which the server does not pass on; serve "
                f"one trained with {argument('time_gaps', 'false')}"
            )
        table = catalogue.table
        self.ids: list[str] = [str(item) for item in table["item"]]
        self.titles: list[str | None] = (
            table["title"].to_list() if "title" in table.columns else [None] * len(self.ids)
        )
        self._index = {item: row for row, item in enumerate(self.ids, start=1)}
        self.popularity = catalogue.cold_start_scores()
        with torch.inference_mode():  # once: some backbones compute them from their weights
            self.vectors = self._model.item_vectors().float().contiguous()
            bias = self._model.item_bias()
            self.bias = None if bias is None else bias.float()
        self.why_no_state = self._model.why_no_state()
        large = ann_from is not None and self.n_items >= ann_from
        self.index_of_vectors = AnnIndex(self.vectors, self.bias) if large else None
        self._codec = None if self.why_no_state else self._make_codec()

    def _make_codec(self) -> StateCodec:
        return StateCodec(self._model.start_closed(1), self._model.config.width)

    @property
    def streams(self) -> bool:
        """Whether a user has a state of fixed size; if not, `why_no_state` says why."""
        return self._codec is not None

    @property
    def codec(self) -> StateCodec:
        assert self._codec is not None, self.why_no_state
        return self._codec

    @property
    def n_items(self) -> int:
        return len(self.ids)

    def indices(self, items: Iterable[str]) -> Indices:
        """Known items by their ids; unknown ones are left out."""
        found = [self._index[item] for item in items if item in self._index]
        return np.array(found, np.int64)

    def index(self, item: str) -> int | None:
        return self._index.get(item)

    def title(self, item: str) -> str | None:
        """The item's title; None if it has none or is unknown."""
        row = self._index.get(item)
        return None if row is None else self.titles[row - 1]

    def search(self, text: str, limit: int) -> list[tuple[str, str]]:
        """Items (id, title or id) whose title or id contains the text; beginnings come first."""
        wanted = text.casefold()
        first, others = [], []
        for item, (shown, lower) in zip(self.ids, self._shown, strict=True):
            if lower.startswith(wanted) or item == text:
                first.append((item, shown))
            elif wanted in lower:
                others.append((item, shown))
            if len(first) == limit:
                break
        return (first + others)[:limit]

    @cached_property
    def _shown(self) -> list[tuple[str, str]]:
        """What each item is called, as it is and for a search."""
        names = [title or item for item, title in zip(self.ids, self.titles, strict=True)]
        return [(name, name.casefold()) for name in names]

    def read(self, head: Head) -> Snapshot | None:
        """The user's current snapshot of this model, or None if it has to be rebuilt."""
        if not self.streams:
            return None
        found, missing = self.read_behind(head)
        return None if missing else found

    def read_behind(self, head: Head) -> tuple[Snapshot | None, int]:
        """This model's newest snapshot, and how many events arrived since."""
        stored = head.snapshot_of(self.fingerprint)
        if stored is None or not 0 <= stored.missing <= head.events:
            return None, 0
        origin = Origin(stored.version, stored.events)
        found = unpack(stored.content, origin, self.fingerprint, self.codec.bytes)
        return found, stored.missing

    def write(self, snapshot: Snapshot, origin: Origin) -> bytes:
        return pack(snapshot, origin, self.fingerprint, self.n_items)

    def hidden(self, snapshot: Snapshot) -> Tensor:
        return self.codec.hidden(snapshot.state)

    @torch.inference_mode()
    def advance(self, users: Sequence[tuple[Snapshot | None, Indices]]) -> list[Snapshot]:
        """Each user's snapshot (None: of a user without a past) after some more known events."""
        states = [self._fresh if snapshot is None else snapshot.state for snapshot, _ in users]
        rows = [items for _, items in users]
        longest = max((len(items) for items in rows), default=0)
        for first in range(0, longest, STRETCH):
            rows_left = [row for row, items in enumerate(rows) if len(items) > first]
            pieces = [rows[row][first : first + STRETCH] for row in rows_left]
            for row, state in zip(rows_left, self._advance(states, rows_left, pieces), strict=True):
                states[row] = state
        return [
            Snapshot(state, _union(None if old is None else old.seen, items))
            for state, (old, items) in zip(states, users, strict=True)
        ]

    @cached_property
    def _fresh(self) -> bytes:
        """The state of a user without a past."""
        nothing = torch.zeros(1, self._model.config.width)
        return self.codec.write(nothing, self._model.start_closed(1))[0]

    def _advance(
        self, states: list[bytes], rows_left: list[int], pieces: list[Indices]
    ) -> list[bytes]:
        _, state = self.codec.read([states[row] for row in rows_left])
        sequences = Sequences.of([piece.astype(np.int32) for piece in pieces])
        hidden, after = self._model.forward_with_state(read_events(sequences), state)
        assert after is not None
        last = torch.from_numpy(sequences.lengths - 1)
        return self.codec.write(hidden[torch.arange(len(rows_left)), last], after)

    @torch.inference_mode()
    def encode(self, histories: Sequence[Indices]) -> Tensor:
        """Whole histories of known items, none of them empty: [rows, width]."""
        if self.streams and max(map(len, histories)) > STRETCH:
            # in stretches, whose memory does not grow with the history
            snapshots = self.advance([(None, items) for items in histories])
            return torch.stack([self.hidden(snapshot) for snapshot in snapshots])
        rows = Sequences.of([items.astype(np.int32) for items in histories])
        return self._model.encode(rows).float()

    def score(self, hidden: Tensor, item: int) -> Tensor:
        """The score of one item for each row: [rows]."""
        score = hidden @ self.vectors[item]
        return score if self.bias is None else score + self.bias[item]


def fingerprint_of(run: Path) -> bytes:
    """Of everything that decides what a state means and how an item scores."""
    digest = blake2b(SNAPSHOT_FORMAT, digest_size=FINGERPRINT)
    for path in Run.model_files(run):
        if path.is_file():  # a missing file is reported where it is read
            with reading(str(path)):
                digest.update(blake2b(path.read_bytes()).digest())
    return digest.digest()


def _union(seen: Indices | None, items: Indices) -> Indices:
    known = items[items != PAD]
    return np.unique(known if seen is None else np.concatenate([seen, known]))
