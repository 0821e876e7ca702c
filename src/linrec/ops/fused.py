"""The compiled kernels as a torch operator, and whether they run.

They serve float32 and bfloat16 on the CPU; all else, and a build without a compiler, takes the
torch form, which is their slow twin: same values, same gradients (tests/ops/test_kernels.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    causal: bool,
    decay: Tensor | None,
) -> Tensor:
    """What the mechanism's `attend` gives, zeros where padded."""
    rate = None if decay is None else decay.float()
    out: Tensor = _attend(q, k, v, keep, rate, mechanism, causal)
    return out


@torch.library.custom_op("linrec::attend", mutates_args=())
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    decay: Tensor | None,
    mechanism: str,
    causal: bool,
) -> Tensor:
    assert _native is not None
    out = _like_projected(q)
    _native.forward(
        RULES[mechanism], _rows(q), _rows(k), _rows(v), _plain(keep), _plain(decay), causal,
        torch.get_num_threads(), out,
    )  # fmt: skip
    return out


@torch.library.custom_op("linrec::attend_backward", mutates_args=())
def _attend_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    decay: Tensor | None,
    mechanism: str,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert _native is not None
    dq, dk, dv = _like_projected(q), _like_projected(q), _like_projected(q)
    # each head of each sequence writes its own share: no sum depends on the number of threads
    shares = None if decay is None else torch.zeros(q.shape[:2], dtype=torch.float64)
    _native.backward(
        RULES[mechanism], _rows(q), _rows(k), _rows(v), _plain(keep), _plain(decay), causal,
        torch.get_num_threads(), _rows(dout), dq, dk, dv, shares,
    )  # fmt: skip
    return dq, dk, dv, q.new_empty(0) if shares is None else shares.sum(0).float()


@_attend.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    decay: Tensor | None,
    mechanism: str,
    causal: bool,
) -> Tensor:
    del k, v, keep, decay, mechanism, causal
    return _like_projected(q)


@_attend_backward.register_fake
def _(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    decay: Tensor | None,
    mechanism: str,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del dout, k, v, keep, mechanism, causal
    ddecay = q.new_empty(0) if decay is None else torch.empty_like(decay)
    return _like_projected(q), _like_projected(q), _like_projected(q), ddecay


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    q, k, v, keep, decay, ctx.mechanism, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, keep, decay)


def _backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, keep, decay = ctx.saved_tensors
    if torch.is_grad_enabled():  # a gradient of this gradient is wanted: the torch form has one
        dq, dk, dv, ddecay = _differentiable(ctx, dout)
    else:
        dq, dk, dv, ddecay = _attend_backward(dout, q, k, v, keep, decay, ctx.mechanism, ctx.causal)
    return dq, dk, dv, None, None if decay is None else ddecay, None, None


def _differentiable(ctx: Any, dout: Tensor) -> list[Tensor | None]:
    from linrec import ops  # which imports this module

    q, k, v, keep, decay = ctx.saved_tensors
    inputs = [x for x in (q, k, v, decay) if x is not None and x.requires_grad]
    with without_kernels():
        out = ops.attend(ctx.mechanism, q, k, v, keep=keep, causal=ctx.causal, decay=decay)
    grads = iter(torch.autograd.grad(out, inputs, dout, create_graph=True))
    return [next(grads) if x is not None and x.requires_grad else None for x in (q, k, v, decay)]


_attend.register_autograd(_backward, setup_context=_save)


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
