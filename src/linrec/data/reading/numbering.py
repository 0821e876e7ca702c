"""Ids become numbers in the order in which they first appear."""

from __future__ import annotations

import polars as pl


class Numbering:
    """Numbers ids in the order of their first appearance, chunk by chunk."""

    def __init__(self) -> None:
        self._known: pl.DataFrame | None = None  # id, number

    @property
    def ids(self) -> pl.Series:
        """The ids by their numbers, each once."""
        assert self._known is not None, "nothing was numbered"
        return self._known["id"]

    def number(self, ids: pl.Series) -> pl.Series:
        """The number of each id, int32; new ids get the next numbers."""
        chunk = pl.DataFrame({"id": self._same_type(ids)})
        unique = chunk.unique(maintain_order=True)
        if self._known is None:
            self._known = unique.with_columns(number=pl.int_range(len(unique), dtype=pl.Int32))
        else:
            new = unique.join(self._known, on="id", how="anti", maintain_order="left")
            first, last = len(self._known), len(self._known) + len(new)
            numbers = pl.int_range(first, last, dtype=pl.Int32)
            self._known = pl.concat([self._known, new.with_columns(number=numbers)], rechunk=True)
        return chunk.join(self._known, on="id", how="left", maintain_order="left")["number"]

    def _same_type(self, ids: pl.Series) -> pl.Series:
        """Ids that are integers in one chunk and names in another are names."""
        if self._known is None or self._known.schema["id"] == ids.dtype:
            return ids
        self._known = self._known.cast({"id": pl.String})
        return ids.cast(pl.String)
