"""The paper's ablation "w/o ELU"."""

from __future__ import annotations

import math

from torch import Tensor

from linrec.ops.linrec import LinRec, unit_rows


class LinRecWithoutElu(LinRec):
    """Both L2 normalisations on Q and K as they come; B' may have any sign."""

    def query(self, q: Tensor) -> Tensor:
        return unit_rows(q) / math.sqrt(q.shape[-1])

    def key(self, k: Tensor) -> Tensor:
        return k
