"""The formula of the authors' released code: K normalised per event, no 1/sqrt(N)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from linrec.ops.linrec import LinRec, unit_rows


class LinRecRowwise(LinRec):
    """Not the paper's equation: rows of B' may sum to more than 1, and grow with the history."""

    def key(self, k: Tensor) -> Tensor:
        return unit_rows(F.elu(k))

    def normalise(self, x: Tensor, column: Tensor, count: Tensor) -> Tensor:
        del column, count
        return x
