"""Dropout as a layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrec.ops.dropout import dropout

_first_row: ContextVar[int | None] = ContextVar("first_row", default=None)


@contextmanager
def rows_from(first: int) -> Iterator[None]:
    """Inside, the rows of a tensor are those from `first` on of a batch that several workers share.

    What is dropped then follows from a row's position in the whole batch, so that it does not
    depend on the number of workers.
    """
    token = _first_row.set(first)
    try:
        yield
    finally:
        _first_row.reset(token)


class Dropout(nn.Module):
    """In training, zeroes a share of the numbers and scales the others to keep the mean."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        first = _first_row.get()
        if first is None and (x.device.type != "cpu" or torch.compiler.is_compiling()):
            return F.dropout(x, self.share)
        seed = int(torch.empty((), dtype=torch.int64).random_())
        return dropout(x, self.share, seed, (first or 0) * x[:1].numel())

    def extra_repr(self) -> str:
        return str(self.share)
