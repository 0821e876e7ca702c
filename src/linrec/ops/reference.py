"""Slow oracles: each mechanism written out from its formula, one position at a time, in float64.

Nothing here is shared with the fast forms but the epsilon, which is part of the definition. The
scores of a mechanism are the function of its name: those of `linear-transformer` are
`linear_transformer_scores`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.ops.mechanism import EPSILON


def attend(
    mechanism: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keep: Tensor | None = None,
    causal: bool = False,
    decay: Tensor | None = None,
) -> Tensor:
    """As linrec.ops.attend, in O(N^2) and float64."""
    q, k, v = q.double(), k.double(), v.double()
    batch, heads, length, _ = q.shape
    keep = torch.ones(batch, length, dtype=torch.bool) if keep is None else keep
    log_g = torch.zeros(heads, dtype=torch.float64) if decay is None else decay.double()
    rows = []
    for b in range(batch):
        for t in range(length):
            seen = keep[b].clone()
            if causal:
                seen[t + 1 :] = False
            if not keep[b, t]:
                rows.append(torch.zeros_like(v[b, :, 0]))
                continue
            # distance in kept events: nothing decays over padding
            order = keep[b].cumsum(0)
            distance = (order[t] - order[seen]).abs().double()
            weight = torch.exp(log_g[:, None] * distance)  # [H, n]
            rows.append(_one_row(mechanism, q[b, :, t], k[b][:, seen], v[b][:, seen], weight))
    return torch.stack(rows).reshape(batch, length, heads, -1).transpose(1, 2)


def running_mean(x: Tensor, logit: Tensor, *, keep: Tensor | None = None) -> Tensor:
    """As linrec.ops.running_mean: a softmax over the kept events of each prefix, in float64."""
    keep = torch.ones_like(logit, dtype=torch.bool) if keep is None else keep
    means = []
    for vectors, logits, kept in zip(x.double(), logit.double(), keep, strict=True):
        for end in range(1, len(kept) + 1):
            seen = kept[:end]
            means.append(logits[:end][seen].softmax(0) @ vectors[:end][seen])
    return torch.stack(means).reshape(x.shape)


def _one_row(mechanism: str, q: Tensor, keys: Tensor, values: Tensor, weight: Tensor) -> Tensor:
    """q: [H, D], keys: [H, n, D], values: [H, n, E], weight: [H, n] -> [H, E]."""
    scores = globals()[mechanism.replace("-", "_") + "_scores"](q, keys, weight)
    return torch.einsum("hn,hne->he", scores, values)


def softmax_scores(q: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    del weight
    return torch.softmax(torch.einsum("hd,hnd->hn", q, keys) / math.sqrt(q.shape[-1]), -1)


def linrec_without_elu_scores(q: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    rho1 = q / (math.sqrt(q.shape[-1]) * (q.square().sum(-1, keepdim=True) + EPSILON).sqrt())
    energy = (weight[..., None] * keys.square()).sum(1, keepdim=True)
    count = weight.sum(1)[:, None, None]
    rho2 = weight[..., None] * keys / (count * energy + EPSILON).sqrt()
    return torch.einsum("hd,hnd->hn", rho1, rho2)


def linrec_scores(q: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    return linrec_without_elu_scores(F.elu(q), F.elu(keys), weight)


linrec_decay_scores = linrec_scores


def linrec_rowwise_scores(q: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    q, keys = F.elu(q), F.elu(keys)
    q = q / (q.square().sum(-1, keepdim=True) + EPSILON).sqrt()
    keys = keys / (keys.square().sum(-1, keepdim=True) + EPSILON).sqrt()
    return weight * torch.einsum("hd,hnd->hn", q, keys) / math.sqrt(q.shape[-1])


def linrec_without_norm_scores(q: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    scale = math.sqrt(q.shape[-1]) * weight.sum(1, keepdim=True) ** 0.5
    return weight * torch.einsum("hd,hnd->hn", F.elu(q), F.elu(keys)) / scale


def linear_transformer_scores(q: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    scores = weight * torch.einsum("hd,hnd->hn", F.elu(q) + 1, F.elu(keys) + 1)
    return scores / (scores.sum(-1, keepdim=True) + EPSILON)


def efficient_scores(q: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    del weight
    return torch.einsum("hd,hnd->hn", q.softmax(-1), keys.softmax(1))
