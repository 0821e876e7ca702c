"""LinRec (SIGIR '23): ELU, then L2-normalised rows of Q and columns of K."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.ops.mechanism import EPSILON, LinearMechanism


def unit_rows(x: Tensor) -> Tensor:
    """Each row divided by its L2 norm."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPSILON)


class LinRec(LinearMechanism):
    """rho1(Q)_i = phi(Q_i) / (sqrt(D) |phi(Q_i)|), rho2(K)_j = phi(K_j) / (sqrt(N) |phi(K_j)|)."""

    def query(self, q: Tensor) -> Tensor:
        return unit_rows(F.elu(q)) / math.sqrt(q.shape[-1])

    def key(self, k: Tensor) -> Tensor:
        return F.elu(k)

    def normalise(self, x: Tensor, column: Tensor, count: Tensor) -> Tensor:
        # the column norm of a prefix is a running sum, so it may divide the query instead of K
        return x * torch.rsqrt(count * column + EPSILON)
