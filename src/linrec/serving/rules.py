"""What a shop wants of every list: named rules and items that are switched off.

They are kept in the store, so that they survive a restart and all servers of that store obey them.
A server looks for changes once per second at most; a change it makes itself counts at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrec.runs.filters import Allowed, Filters
from linrec.serving.categories import CategoryLimit, limits_of
from linrec.serving.messages import RecommendRequest, UnknownError
from linrec.serving.model import ServedModel
from linrec.serving.stores import Store, StoreError

REFRESH_SECONDS = 1.0
RULES, OFF = "rules", "off"  # kinds of shared records


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Filters under a name, as a request may have them itself."""

    only: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    max_per: Mapping[str, int] = field(default_factory=dict)

    def allowed(self, model: ServedModel) -> Allowed:
        """Raises InputError if the model's items do not have these features."""
        filters = Filters(only=self.only, exclude=self.exclude, where=self.where)
        return filters.allowed(model.catalogue, model.index_of)


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What one list may show."""

    allowed: Allowed  # by filters, rules and availability
    hide: NDArray[np.int64]  # items to leave out beside those, where they are few
    limits: tuple[CategoryLimit, ...]
    searched: bool = False  # approximately: `hide` has what the mask of `allowed` leaves out


@dataclass(eq=False)
class _Known:
    """What the store had at a version, and what was made of it for one model."""

    versions: tuple[str, str] = ("", "")
    rules: dict[str, Rule] = field(default_factory=dict)
    off: frozenset[str] = frozenset()
    model: ServedModel | None = None
    masks: dict[str, Allowed] = field(default_factory=dict)
    off_items: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    on: NDArray[np.bool_] | None = None  # [n_items + 1]; None: all are on
    default: Wanted | None = None  # by requests without a filter, once there was one


class SharedRules:
    """The rules and the availability of a store, for any number of threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, Lock()
        self._known, self._looked = _Known(), -REFRESH_SECONDS

    def rules(self) -> dict[str, Rule]:
        self._read()
        return dict(sorted(self._known.rules.items()))

    def put_rule(self, name: str, rule: Rule, model: ServedModel) -> None:
        """Raises InputError if the model has no such features."""
        rule.allowed(model)
        limits_of(model, rule.max_per)
        self._store.change_shared(RULES, {name: json.dumps(asdict(rule))})
        self._read()

    def delete_rule(self, name: str) -> bool:
        existed = name in self.rules()
        self._store.change_shared(RULES, {name: None})
        self._read()
        return existed

    def off(self) -> list[str]:
        """Items that are switched off, also such as the model does not know."""
        self._read()
        return sorted(self._known.off)

    def switch(self, *, off: Sequence[str] = (), on: Sequence[str] = ()) -> None:
        self._store.change_shared(OFF, dict.fromkeys(off, "") | dict.fromkeys(on, None))
        self._read()

    def off_in(self, model: ServedModel) -> NDArray[np.int64]:
        return self._of(model).off_items

    def wanted(self, model: ServedModel, request: RecommendRequest) -> Wanted:
        """Raises InputError or UnknownError if the request cannot be met."""
        known = self._of(model)
        if not _asks(request):
            known.default = known.default or self._wanted(known, model, request)
            return known.default
        return self._wanted(known, model, request)

    def _wanted(self, known: _Known, model: ServedModel, request: RecommendRequest) -> Wanted:
        filters = Filters(only=request.only, exclude=request.exclude, where=request.where)
        own = filters.allowed(model.catalogue, model.index_of)
        parts = [own, *(_mask_of(known, model, name) for name in request.rules)]
        limits = [request.max_per, *(known.rules[name].max_per for name in request.rules)]
        few = request.only is None and not request.where and not request.rules
        if few and model.index_of_vectors is not None:
            # an approximate search can leave out a few items, but cannot use a mask
            hide = np.concatenate([model.indices(request.exclude), known.off_items])
            return Wanted(own, hide, _all_limits(model, limits), searched=True)
        allowed = _both(parts, known.on)
        return Wanted(allowed, np.empty(0, np.int64), _all_limits(model, limits))

    def _of(self, model: ServedModel) -> _Known:
        now = monotonic()
        if now - self._looked >= REFRESH_SECONDS:
            self._looked = now
            # if it fails, what was known stays in force; what needs the store reports it
            with suppress(StoreError):
                self._read()
        known = self._known
        if known.model is not model:
            known = _for_model(known, model)
            with self._lock:
                if self._known.versions == known.versions:
                    self._known = known
        return known

    def _read(self) -> None:
        """What has changed since."""
        with self._lock:
            versions = (self._store.shared_version(RULES), self._store.shared_version(OFF))
            if versions != self._known.versions:
                stored = self._store.shared(RULES)
                rules = {name: Rule(**json.loads(value)) for name, value in stored.items()}
                self._known = _Known(versions, rules, frozenset(self._store.shared(OFF)))


def _asks(request: RecommendRequest) -> bool:
    """Whether it says anything about which items its list may show."""
    return bool(
        request.only is not None
        or len(request.exclude)
        or request.where
        or request.rules
        or request.max_per
    )


def _for_model(known: _Known, model: ServedModel) -> _Known:
    items = np.sort(model.indices(known.off))
    on = None
    if len(items):
        on = np.ones(model.n_items + 1, np.bool_)
        on[items] = False
    return _Known(known.versions, known.rules, known.off, model, {}, items, on)


def _mask_of(known: _Known, model: ServedModel, name: str) -> Allowed:
    """Of a rule, made once per model and change of the rules."""
    if name not in known.rules:
        raise UnknownError(f"there is no rule {name!r}; see GET /v1/rules")
    if name not in known.masks:
        known.masks[name] = known.rules[name].allowed(model)
    return known.masks[name]


def _both(parts: Sequence[Allowed], on: NDArray[np.bool_] | None) -> Allowed:
    masks = [part.items for part in parts if part.items is not None]
    masks += [] if on is None else [on]
    if not masks:
        return parts[0]
    shown = np.logical_and.reduce(masks) if len(masks) > 1 else masks[0]
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return Allowed(shown, int(shown[1:].sum()), notes, parts[0].unlearned)


def _all_limits(
    model: ServedModel, given: Sequence[Mapping[str, int]]
) -> tuple[CategoryLimit, ...]:
    """Of several for one feature the lowest."""
    lowest: dict[str, int] = {}
    for limits in given:
        for feature, count in limits.items():
            lowest[feature] = min(count, lowest.get(feature, count))
    return limits_of(model, lowest)
