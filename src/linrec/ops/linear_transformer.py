"""Linear Transformer (Katharopoulos et al. 2020): feature map ELU + 1, rows sum to one."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from linrec.ops.mechanism import EPSILON, LinearMechanism


class LinearTransformer(LinearMechanism):
    """phi(Q) (sum phi(K) V^T) / phi(Q) . sum phi(K)."""

    normalises: ClassVar[Literal["columns", "rows"]] = "rows"

    def query(self, q: Tensor) -> Tensor:
        return F.elu(q) + 1

    def key(self, k: Tensor) -> Tensor:
        return F.elu(k) + 1

    def column(self, key: Tensor) -> Tensor:
        return key

    def normalise(self, x: Tensor, column: Tensor, count: Tensor) -> Tensor:
        del count
        return x / ((x * column).sum(-1, keepdim=True) + EPSILON)
