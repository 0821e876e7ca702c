"""The compiled kernels that take numbers row by row: dropout, the loss, norms, what repeats gain.

Each is called by the operator of its name, which has the same in torch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linrec.ops.fused import library, like_projected, plain, takes
from linrec.types import PastCounts, SeenItems


def dropout(x: Tensor, seed: int, threshold: int, scale: float, first: int = 0) -> Tensor:
    """What linrec.ops.dropout computes, outside autograd; first: a multiple of its two blocks."""
    out, threads = torch.empty_like(x), torch.get_num_threads()
    library().dropout(x.detach().view(-1), seed, threshold, scale, threads, out.view(-1), first)
    return out


def cross_entropy_(
    scores: Tensor, labels: Tensor, seen: SeenItems | None, first_item: int
) -> tuple[Tensor, Tensor]:
    """What linrec.ops.cross_entropy computes, outside autograd."""
    total, loss = torch.empty(2, len(scores))
    threads = torch.get_num_threads()
    given = None if seen is None else tuple(plain(x) for x in seen[:3])
    library().cross_entropy(scores.detach(), plain(labels), given, first_item, threads, total, loss)
    return total, loss


def takes_heads(x: Tensor, scale: Tensor) -> bool:
    """Whether the kernels can normalise [B, H, N, D] that lies in memory as [B, N, H, D]."""
    return (
        takes(x.transpose(1, 2))
        and scale.dtype == torch.float32
        and scale.is_contiguous()
        and x.shape[3] in (8, 16, 32, 64, 128)
        # torch.compile and torch.export fuse or trace the torch form themselves
        and not torch.compiler.is_compiling()
    )


def head_norm(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """What linrec.ops.head_norm computes, outside autograd."""
    out = like_projected(x)
    threads = torch.get_num_threads()
    library().head_norm(_flat_heads(x), scale.detach(), epsilon, threads, _flat_heads(out))
    return out


def head_norm_backward(
    x: Tensor, scale: Tensor, epsilon: float, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the scale."""
    dx, rows = like_projected(x), _flat_heads(x)
    pieces = -(-len(rows) // library().NORM_ROWS)
    shares = torch.zeros(pieces, scale.numel())
    given = _flat_heads(gradient.to(x.dtype).transpose(1, 2).contiguous().transpose(1, 2))
    threads = torch.get_num_threads()
    library().head_norm_backward(
        rows, scale.detach(), epsilon, threads, given, _flat_heads(dx), shares
    )
    return dx, shares.sum(0).view_as(scale)


def _flat_heads(x: Tensor) -> Tensor:
    """[B, H, N, D] in memory as [B, N, H, D] -> [B N, H, D]."""
    return x.detach().transpose(1, 2).flatten(0, 1)


def repeat_gains(rates: Tensor, in_events: int, past: PastCounts, weights: Tensor) -> Tensor:
    """What linrec.layers.repeats computes for each pair, outside autograd: [P].

    rates: [K], of which the first `in_events` are per event. weights: [T, 1 + K].
    """
    values = weights.new_empty(len(past.newest))
    threads = torch.get_num_threads()
    library().repeat_gains(rates, in_events, *_past(past), weights.detach(), threads, values)
    return values


def repeat_to_weights(rates: Tensor, in_events: int, past: PastCounts, gradient: Tensor) -> Tensor:
    """The gradient of the weights, [T, 1 + K], from that of the values, [P]."""
    weights = gradient.new_empty(len(past.counts), 1 + len(rates))
    threads = torch.get_num_threads()
    library().repeat_to_weights(rates, in_events, *_past(past), gradient.detach(), threads, weights)
    return weights


def _past(past: PastCounts) -> list[Tensor | None]:
    timed = past.times is not None and past.moments is not None
    times, moments = (past.times, past.moments) if timed else (None, None)
    parts = (past.sums, past.places, times, past.newest, past.counts, past.ends, moments)
    return [plain(part) for part in parts]
