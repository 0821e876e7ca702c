"""The compiled kernels as a torch operator, and whether they run.

They serve float32 and bfloat16 on the CPU; all else, and a build without a compiler, takes the
torch form, which is their slow twin: same values, same gradients (tests/ops/test_kernels.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

_native: ModuleType | None
try:
    _native = import_module("linrec.ops._native")
except ImportError:
    _native = None

# what the kernels call each mechanism; a decay is an argument of its own
RULES = {
    "linrec": "linrec",
    "linrec-decay": "linrec",
    "linrec-rowwise": "linrec-rowwise",
    "linear-transformer": "linear-transformer",
    "linrec-without-norm": "linrec-without-norm",
    "linrec-without-elu": "linrec-without-elu",
}
DTYPES = (torch.float32, torch.bfloat16)

_switched_off = os.environ.get("LINREC_KERNELS", "").lower() in ("off", "0", "no", "false")


def kernels(mechanism: str | None = None) -> str:
    """Which kernels run on this CPU: "avx512", "avx2", "portable", or "off: " and the reason.

    With a mechanism: whether they run for it.
    """
    if _native is None:
        return "off: linrec was built without a C++ compiler"
    if _switched_off:
        return "off: LINREC_KERNELS=off"
    if mechanism is not None and mechanism not in RULES:
        return f"off: there is none for {mechanism}"
    name: str = _native.instructions()
    return name


@contextmanager
def without_kernels() -> Iterator[None]:
    """Within it, attention takes the torch form: to compare the two."""
    global _switched_off  # noqa: PLW0603 - one switch for the process, as the environment's is
    before, _switched_off = _switched_off, True
    try:
        yield
    finally:
        _switched_off = before


def covers(mechanism: str, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernels run for these tensors."""
    return (
        _native is not None
        and not _switched_off
        and mechanism in RULES
        and q.device.type == "cpu"
        and q.dtype in DTYPES
        and q.dtype == k.dtype == v.dtype
        and q.shape == v.shape
        and 0 < q.shape[3] <= _native.WIDEST
    )


def attend(
    mechanism: str,
    parts: list[Tensor],
    keep: Tensor | None,
    causal: bool,
    decay: Tensor | None,
) -> Tensor:
    """What the mechanism's `attend` gives, zeros where padded.

    parts: q, k and v, or one tensor of all three, [B, N, 3, H, D]. Then so is its gradient, which
    autograd would otherwise have to put together from three.
    """
    rate = None if decay is None else decay.float()
    out: Tensor = _attend(parts, keep, rate, mechanism, causal)
    return out


def takes(x: Tensor) -> bool:
    """Whether the kernels take this as numbers one after the other."""
    return (
        _native is not None
        and not _switched_off
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.is_contiguous()
        and x.numel() > 0
    )


def dropout(x: Tensor, seed: int, dropped: int, scale: float) -> Tensor:
    """What linrec.ops.dropout draws and does; no part of a graph."""
    assert _native is not None
    to = torch.empty_like(x)
    _native.dropout(x.detach().view(-1), seed, dropped, scale, torch.get_num_threads(), to.view(-1))
    return to


def exponentials_(scores: Tensor) -> tuple[Tensor, Tensor]:
    """What linrec.ops.exponentials does; no part of a graph."""
    assert _native is not None
    largest, whole = scores.new_empty(len(scores)), scores.new_empty(len(scores))
    _native.exponentials(scores.detach(), torch.get_num_threads(), largest, whole)
    return largest[:, None], whole[:, None]


@torch.library.custom_op("linrec::attend", mutates_args=())
def _attend(
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    mechanism: str,
    causal: bool,
) -> Tensor:
    assert _native is not None
    q, k, v = _three(parts)
    out = _like_projected(q)
    _native.forward(
        RULES[mechanism], _rows(q), _rows(k), _rows(v), _plain(keep), _plain(decay), causal,
        torch.get_num_threads(), out,
    )  # fmt: skip
    return out


@torch.library.custom_op("linrec::attend_backward", mutates_args=())
def _attend_backward(
    dout: Tensor,
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    mechanism: str,
    causal: bool,
) -> list[Tensor]:
    """The gradients of the parts and, last, of the decay."""
    assert _native is not None
    gradients = _gradients(parts)
    (q, k, v), (dq, dk, dv) = _three(parts), _three(gradients)
    # each head of each sequence writes its own share: no sum depends on the number of threads
    shares = None if decay is None else torch.zeros(q.shape[:2], dtype=torch.float64)
    _native.backward(
        RULES[mechanism], _rows(q), _rows(k), _rows(v), _plain(keep), _plain(decay), causal,
        torch.get_num_threads(), _rows(dout), dq, dk, dv, shares,
    )  # fmt: skip
    return [*gradients, dout.new_empty(0) if shares is None else shares.sum(0).float()]


@_attend.register_fake
def _(
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    mechanism: str,
    causal: bool,
) -> Tensor:
    del keep, decay, mechanism, causal
    return _like_projected(_three(parts)[0])


@_attend_backward.register_fake
def _(
    dout: Tensor,
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    mechanism: str,
    causal: bool,
) -> list[Tensor]:
    del keep, mechanism, causal
    return [*_gradients(parts), dout.new_empty(0) if decay is None else torch.empty_like(decay)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    parts, keep, decay, ctx.mechanism, ctx.causal = inputs
    ctx.save_for_backward(*parts, keep, decay)


def _backward(ctx: Any, dout: Tensor) -> tuple[Any, ...]:
    *parts, keep, decay = ctx.saved_tensors
    if torch.is_grad_enabled():  # a gradient of this gradient is wanted: the torch form has one
        *gradients, ddecay = _differentiable(ctx, dout)
    else:
        *gradients, ddecay = _attend_backward(dout, parts, keep, decay, ctx.mechanism, ctx.causal)
    return gradients, None, None if decay is None else ddecay, None, None


def _differentiable(ctx: Any, dout: Tensor) -> list[Tensor | None]:
    from linrec import ops  # which imports this module

    *parts, keep, decay = ctx.saved_tensors
    wanted = [x is not None and x.requires_grad for x in (*parts, decay)]
    inputs = [x for x, want in zip((*parts, decay), wanted, strict=True) if want]
    with without_kernels():
        out = ops.attend(ctx.mechanism, *_three(parts), keep=keep, causal=ctx.causal, decay=decay)
    found = iter(torch.autograd.grad(out, inputs, dout, create_graph=True))
    return [next(found) if want else None for want in wanted]


_attend.register_autograd(_backward, setup_context=_save)


def _three(parts: Sequence[Tensor]) -> Sequence[Tensor]:
    """q, k and v, each [B, H, N, D]."""
    return parts if len(parts) == 3 else parts[0].permute(2, 0, 3, 1, 4).unbind()


def _gradients(parts: Sequence[Tensor]) -> list[Tensor]:
    """Room for the gradients, packed as the parts are."""
    if len(parts) == 1:
        return [torch.empty_like(parts[0], memory_format=torch.contiguous_format)]
    return [_like_projected(part) for part in parts]


def _like_projected(q: Tensor) -> Tensor:
    """[B, H, N, D] whose memory is [B, N, H, D], so that merging the heads is a view."""
    batch, heads, length, width = q.shape
    return q.new_empty(batch, length, heads, width).transpose(1, 2)


def _rows(x: Tensor) -> Tensor:
    """As it is if its last dimension is contiguous, which is all that the kernels ask for."""
    x = x.detach()
    return x if x.stride(-1) == 1 else x.contiguous()


def _plain(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().contiguous()
