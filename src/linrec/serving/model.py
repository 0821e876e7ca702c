"""A run in memory, as the engine uses it: made once, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.backbones import Backbone
from linrec.baselines import Baseline
from linrec.data.dataset.context import given_codes
from linrec.data.dataset.past_counts import ItemCounts, counts_of_users
from linrec.files.guard import reading
from linrec.layers.repeats import additions
from linrec.runs.catalogue import Catalogue
from linrec.runs.extending import NewItem, problems_of, with_items
from linrec.runs.manifest import checksum_of
from linrec.runs.run import Run
from linrec.runs.weights import AnyModel
from linrec.scoring import HIDDEN, add_repeats, item_scores
from linrec.serving.ann import AnnIndex
from linrec.serving.contexts import context_of
from linrec.serving.past import Indices, Past, sequences_of
from linrec.serving.snapshot import FINGERPRINT, Origin, Snapshot, pack, unpack
from linrec.serving.states import States, obey_thread_limit, states_of
from linrec.serving.stores import Event, Head
from linrec.types import PAD, InputError, Seen

SNAPSHOT_FORMAT = b"4"
# events advanced at once: bounds the memory of a long history, and the padding of a short one
STRETCH = 256
MAX_CONTEXTS = 100_000  # whose codes are remembered
NO_STATE = "a baseline keeps no state of fixed size; it counts the whole history again"


class ServedModel:
    """Encodes and advances users; knows the items by their ids as text."""

    def __init__(
        self, run: str | Path, ann_from: int | None = None, seen: Seen | None = None
    ) -> None:
        """ann_from: items from which on they are searched approximately.

        seen: what to do with seen items where a request does not say; None: as the run says.
        """
        opened, model = Run.load(Path(run))
        self.run, self._seen, self._ann_from = Path(run), seen, ann_from
        self.config, self.description = opened.config, opened.description
        # of the run; `key` is what states are stored under, which depend on the items too
        self.fingerprint = self.key = _fingerprint(opened.model_checksums)
        self.base = self  # without added items
        self._hold(opened.catalogue, model)

    def with_items(self, items: Sequence[NewItem], digest: bytes) -> ServedModel:
        """The same model with these items after its own. digest: of what is known of them."""
        base = self.base
        if not items:
            return base
        assert isinstance(base._model, Backbone), "baselines take no new items"
        made = object.__new__(ServedModel)
        made.run, made._seen, made._ann_from = base.run, base._seen, base._ann_from
        made.config, made.description = base.config, base.description
        made.fingerprint, made.base = base.fingerprint, base
        # events of an item are left out before it is known: other items, other states
        made.key = blake2b(digest, digest_size=FINGERPRINT, key=base.fingerprint).digest()
        made._hold(*with_items(base._model, base.description, base.catalogue, items))
        return made

    def problems_of(self, items: Sequence[NewItem]) -> dict[str, str]:
        """Why each of these items cannot be added, where one cannot."""
        base = self.base
        new = [item for item in items if base.index(item.item) is None]
        known = {
            item.item: f"the run knows the item {item.item!r} already, by events of its own; leave "
            "it out"
            for item in items
            if base.index(item.item) is not None
        }
        return known | problems_of(new, base._model, base.catalogue)

    def _hold(self, catalogue: Catalogue, model: AnyModel) -> None:
        self._model = model.requires_grad_(False)
        self.catalogue, table = catalogue, catalogue.table
        self.ids: list[str] = [str(item) for item in table["item"]]
        self.titles: list[str | None] = (
            table["title"].to_list() if "title" in table.columns else [None] * len(self.ids)
        )
        self._index = {item: row for row, item in enumerate(self.ids, start=1)}
        self._contexts: dict[str | None, list[int]] = {}  # their codes
        self.popularity = catalogue.cold_start_scores()
        self.vectors, self.bias = vectors_of(model)
        self._repeat = model.repeat if isinstance(model, Backbone) else None
        self.why_no_state = NO_STATE if isinstance(model, Baseline) else model.why_no_state()
        self.index_of_vectors = None
        enough = self._ann_from is not None and self.n_items >= self._ann_from
        if self.vectors is not None and enough:
            assert isinstance(model, Backbone)
            # without what may not be shown: an approximate search has no place for -inf
            self.index_of_vectors = AnnIndex(self.vectors, model.item_bias())
        self._states = None
        if isinstance(model, Backbone) and self.why_no_state is None:
            self._states = states_of(model)

    @property
    def streams(self) -> bool:
        """Whether a user has a state of fixed size; if not, `why_no_state` says why."""
        return self._states is not None

    @property
    def states(self) -> States:
        assert self._states is not None, self.why_no_state
        return self._states

    @property
    def reads_time(self) -> bool:
        """Whether recommendations depend on the times of events and requests."""
        return self._model.config.time_gaps

    def seen_in(self, requested: Seen | None = None) -> Seen:
        """What a list does with seen items: as requested, as the server says, as the run says."""
        return self.config.seen_in(requested or self._seen)

    @property
    def n_items(self) -> int:
        return len(self.ids)

    @cached_property
    def may_be_shown(self) -> NDArray[np.bool_]:
        """[n_items + 1], False on items that the model learned nothing about."""
        if self.bias is None:
            return np.ones(self.n_items + 1, np.bool_)
        return np.asarray((self.bias > HIDDEN).numpy())

    def indices(self, items: Iterable[str]) -> Indices:
        """Known items by their ids; unknown ones are left out."""
        found = [self._index[item] for item in items if item in self._index]
        return np.array(found, np.int64)

    def index_of(self, items: Sequence[str]) -> Indices:
        """The index of each item, 0 where it is unknown."""
        return np.array([self._index.get(item, PAD) for item in items], np.int64)

    def past(self, events: Iterable[Event]) -> Past:
        """Events as the model reads them; those of unknown items are left out."""
        index = self._index
        known = [event for event in events if event.item in index]
        fields = self.description.context
        context = [self._codes(event.context) for event in known] if fields else None
        pairs = [(index[event.item], event.time) for event in known]
        return Past.of(pairs, context)

    def _codes(self, context: str | None) -> list[int]:
        """In the vocabularies of the run; few different contexts occur again and again."""
        found = self._contexts.get(context)
        if found is None:
            found = given_codes(self.description.context, context_of(context))
            if len(self._contexts) < MAX_CONTEXTS:
                self._contexts[context] = found
        return found

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
        latest: Snapshot | None = head.latest.get(self.key)
        if latest is not None:
            return latest, 0
        stored = head.snapshot_of(self.key)
        if stored is None or not 0 <= stored.missing <= head.events:
            return None, 0
        found: Snapshot | None = head.unpacked.get(self.key)
        if found is None:
            origin = Origin(stored.version, stored.events)
            found = unpack(stored.content, origin, self.key, self.states.bytes)
            if found is not None:
                head.unpacked[self.key] = found
        return found, stored.missing

    def write(self, snapshot: Snapshot, origin: Origin) -> bytes:
        return pack(snapshot, origin, self.key, self.n_items)

    def hidden(self, states: Sequence[bytes], at: Sequence[float]) -> Tensor:
        """Of each user's snapshot, in a request at these times (NaN: unknown): [rows, width]."""
        return self.states.hidden(list(states), at)

    def advance(self, users: Sequence[tuple[Snapshot | None, Past]]) -> list[Snapshot]:
        """Each user's snapshot (None: of a user without a past) after some more events."""
        states = [self.states.start if old is None else old.state for old, _ in users]
        rows = [past for _, past in users]
        longest = max(map(len, rows), default=0)
        for first in range(0, longest, STRETCH):
            rows_left = [row for row, past in enumerate(rows) if len(past) > first]
            pieces = [rows[row][first : first + STRETCH] for row in rows_left]
            after = self.states.advance([states[row] for row in rows_left], pieces)
            for row, state in zip(rows_left, after, strict=True):
                states[row] = state
        return [
            self._snapshot(state, old, past)
            for state, (old, past) in zip(states, users, strict=True)
        ]

    def _snapshot(self, state: bytes, old: Snapshot | None, past: Past) -> Snapshot:
        counts = self.counts(past, None if old is None else old.counts)
        if counts is not None:
            return Snapshot(state, counts.items, counts)
        return Snapshot(state, _union(None if old is None else old.seen, past.items))

    def counts(self, past: Past, before: ItemCounts | None = None) -> ItemCounts | None:
        """Of the items of the past, after some counts before it; None without a repeat head."""
        if self._repeat is None:
            return None
        before = before or ItemCounts.none(self.reads_time)
        known = past.items != PAD
        return before.after(past.items[known], past.times[known])

    @torch.inference_mode()
    def encode(self, histories: Sequence[Past], at: Sequence[float]) -> Tensor:
        """Whole histories, none of them empty, in requests at these times: [rows, width]."""
        obey_thread_limit()
        if self.streams and max(map(len, histories)) > STRETCH:
            # in stretches, whose memory does not grow with the history
            snapshots = self.advance([(None, past) for past in histories])
            return self.hidden([snapshot.state for snapshot in snapshots], at)
        sequences = sequences_of(histories, at)
        if isinstance(self._model, Baseline):
            scores: Tensor = self._model(sequences)
            return scores
        return self._model.encode(sequences).float()

    @torch.inference_mode()
    def scores(
        self, hidden: Tensor, counts: Sequence[ItemCounts | None], at: Sequence[float]
    ) -> Tensor:
        """Of all items for each row, in requests at these times: [rows, n_items + 1]."""
        if self.vectors is None:
            return hidden
        obey_thread_limit()
        scores = item_scores(hidden, self.vectors, self.bias)
        if self._repeat is None:
            return scores
        past = counts_of_users([known for known in counts if known is not None], at)
        return add_repeats(scores, self._repeat(hidden), past)

    def past_scores(self, hidden: Tensor, counts: ItemCounts, at: float) -> Tensor:
        """Of one user's past items alone. hidden: [width]."""
        repeat = self._repeat
        assert repeat is not None
        assert self.vectors is not None
        items = torch.from_numpy(counts.items)
        score = self.vectors[items] @ hidden
        score = score if self.bias is None else score + self.bias[items]
        gained = additions(repeat(hidden[None]), counts_of_users([counts], [at]))
        return score + gained.values

    @torch.inference_mode()
    def similarities(self, item: int) -> Tensor:
        """The cosine of each item with this one: [n_items + 1]."""
        if self.vectors is not None:
            unit = torch.nn.functional.normalize(self.vectors, dim=1)
            return unit @ unit[item]
        known = self._model.similar(item) if isinstance(self._model, Baseline) else None
        if known is None:
            name = self.description.model.backbone
            raise InputError(
                f"the baseline {name} cannot tell which items are similar; serve a trained model "
                "or item-knn for that"
            )
        return known


def vectors_of(model: AnyModel) -> tuple[Tensor | None, Tensor | None]:
    """The item vectors, made once because some backbones compute them, and the item biases.

    None of a baseline: what it encodes a history as are the scores of all items.
    """
    if isinstance(model, Baseline):
        return None, None
    with torch.inference_mode():
        bias = model.shown_bias()
        # with the items side by side: the product with one hidden vector takes half the time
        vectors = model.item_vectors().float().T.contiguous().T
        return vectors, None if bias is None else bias.float()


def fingerprint_of(run: Path) -> bytes:
    """Of everything that decides what a state means and how an item scores."""
    checksums = []
    for path in Run.model_files(run):
        if path.is_file():  # a missing file is reported where it is read
            with reading(str(path)):
                checksums.append(checksum_of(path.read_bytes()))
    return _fingerprint(checksums)


def _fingerprint(checksums: Iterable[str]) -> bytes:
    digest = blake2b(SNAPSHOT_FORMAT, digest_size=FINGERPRINT)
    for checksum in checksums:
        digest.update(bytes.fromhex(checksum))
    return digest.digest()


def _union(seen: Indices | None, items: Indices) -> Indices:
    if seen is not None and len(items) == 1 and items[0] != PAD:  # without sorting all
        place = int(seen.searchsorted(items[0]))
        there = place < len(seen) and seen[place] == items[0]
        return seen if there else np.concatenate((seen[:place], items, seen[place:]))
    known = items[items != PAD]
    return np.unique(known if seen is None else np.concatenate([seen, known]))
