"""The kernels as a torch operator, and whether they run.

Those in C++ serve float32 and bfloat16 on the CPU, those in Triton also float16 on GPUs. Everything
else, a build without a compiler and a GPU without Triton take the torch form, which is their slow
twin: same values, same gradients (tests/ops/test_kernels.py, tests/ops/test_triton.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from linrec.ops import triton
from linrec.ops.rule import Normaliser, Rule
from linrec.ops.rule_based import RuleBased
from linrec.ops.tracing import constant

_native: ModuleType | None
try:
    _native = import_module("linrec.ops._native")
except ImportError:
    _native = None

DTYPES = (torch.float32, torch.bfloat16)

# per thread and task: a comparison in one of them does not slow down the others
_enabled = ContextVar(
    "linrec_kernels",
    default=os.environ.get("LINREC_KERNELS", "").lower() not in ("off", "0", "no", "false"),
)


def running(device_type: str = "cpu") -> str:
    """Which kernels run on such devices: "avx512", "triton 3.7.1", or "off: " and the reason."""
    missing = triton.why_not(device_type)
    if missing and device_type == "cpu":
        missing = None if _native else "linrec was built without a C++ compiler"
    if missing:
        return f"off: {missing}"
    if not are_enabled():
        return "off: LINREC_KERNELS=off"
    return triton.name() if _in_triton(device_type) else instructions()


def instructions() -> str:
    """The instructions that the compiled kernels use: "avx512", "avx2" or "portable"."""
    assert _native is not None
    name: str = _native.instructions()
    return name


def native() -> Any:
    """The compiled module, or None if there is none or it is switched off."""
    return _native if are_enabled() else None


def library() -> Any:
    """The compiled module, switched off or not: the way back takes the kernel of the way there."""
    assert _native is not None
    return _native


# torch.compile cannot read a context variable
@constant
def are_enabled() -> bool:
    return _enabled.get()


def _in_triton(device_type: str) -> bool:
    return triton.why_not(device_type) is None


@contextmanager
def without_kernels() -> Iterator[None]:
    """Within it, attention takes the torch form: to compare the two.

    Other threads keep the kernels, and so does a graph that was compiled before.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 50, 8)
        >>> with ops.without_kernels():
        ...     slow = ops.attend("linrec", q, k, v, causal=True)
        >>> torch.allclose(slow, ops.attend("linrec", q, k, v, causal=True), atol=1e-5)
        True
    """
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


def has_kernel(rule: Rule | None, device_type: str = "cpu") -> bool:
    """Decayed sums have a gradient of their own, which in C++ is written for column norms only."""
    if rule is None or _in_triton(device_type):
        return rule is not None
    return not rule.decay or rule.normaliser == Normaliser.COLUMN_NORM


def covers(rule: Rule | None, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernels run for these tensors."""
    if _in_triton(q.device.type):
        return are_enabled() and triton.covers(rule, q, k, v)
    return (
        _native is not None
        and are_enabled()
        and has_kernel(rule)
        and q.device.type == "cpu"
        and q.dtype in DTYPES
        and q.dtype == k.dtype == v.dtype
        and q.shape == v.shape
        and 0 < q.shape[3] <= _native.MAX_WIDTH
    )


def attend(
    rule: Rule, parts: list[Tensor], keep: Tensor | None, causal: bool, decay: Tensor | None
) -> Tensor:
    """What the `attend` of the rule's mechanism gives, zeros where padded.

    parts: q, k and v, or one tensor of all three, [B, N, 3, H, D]. Then so is its gradient, which
    autograd would otherwise have to put together from three.
    """
    rate = None if decay is None else decay.float()
    numbers = [int(field) for field in rule]
    # nobody learns from it or traces it; torch imports its compiler to call an operator
    if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled() and _plain(parts):
        return _attended(parts, keep, rate, numbers, causal)
    out: Tensor = _attend(parts, keep, rate, numbers, causal)
    return out


def _plain(tensors: Sequence[Tensor]) -> bool:
    """Whether they hold numbers, which those of a tracer do not."""
    return all(type(tensor) is Tensor and tensor.device.type == "cpu" for tensor in tensors)


def takes(x: Tensor, dtypes: tuple[torch.dtype, ...] = DTYPES) -> bool:
    """Whether the kernels can read this as one flat array of one of these types."""
    return (
        _native is not None
        and are_enabled()
        and x.device.type == "cpu"
        and x.dtype in dtypes
        and x.is_contiguous()
        and x.numel() > 0
    )


def _attended(
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    rule: Sequence[int],
    causal: bool,
) -> Tensor:
    q, k, v = _three(parts)
    out = like_projected(q)
    if _in_triton(q.device.type):
        from linrec.ops.triton import passes

        inputs = passes.Inputs(q, k, v, keep, decay)
        passes.attend(Rule.from_numbers(rule), inputs, causal, out)
        return out
    assert _native is not None
    _native.forward(
        rule, _rows(q), _rows(k), _rows(v), plain(keep), plain(decay), causal,
        torch.get_num_threads(), out,
    )  # fmt: skip
    return out


_attend = torch.library.custom_op("linrec::attend", _attended, mutates_args=())


@torch.library.custom_op("linrec::attend_backward", mutates_args=())
def _attend_backward(
    dout: Tensor,
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    rule: Sequence[int],
    causal: bool,
) -> list[Tensor]:
    """The gradients of the parts and, last, of the decay."""
    gradients = _gradients(parts)
    (q, k, v), (dq, dk, dv) = _three(parts), _three(gradients)
    if _in_triton(q.device.type):
        from linrec.ops.triton import passes

        inputs = passes.Inputs(q, k, v, keep, decay)
        ddecay = passes.attend_backward(Rule.from_numbers(rule), inputs, causal, dout, (dq, dk, dv))
        return [*gradients, dout.new_empty(0) if ddecay is None else ddecay]
    assert _native is not None
    # each head of each sequence writes its own share, so the sum does not depend on the threads
    shares = None if decay is None else torch.zeros(q.shape[:2], dtype=torch.float64)
    _native.backward(
        rule, _rows(q), _rows(k), _rows(v), plain(keep), plain(decay), causal,
        torch.get_num_threads(), _rows(dout), dq, dk, dv, shares,
    )  # fmt: skip
    return [*gradients, dout.new_empty(0) if shares is None else shares.sum(0).float()]


@_attend.register_fake
def _(
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    rule: Sequence[int],
    causal: bool,
) -> Tensor:
    del keep, decay, rule, causal
    return like_projected(_three(parts)[0])


@_attend_backward.register_fake
def _(
    dout: Tensor,
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    rule: Sequence[int],
    causal: bool,
) -> list[Tensor]:
    del keep, rule, causal
    return [*_gradients(parts), dout.new_empty(0) if decay is None else torch.empty_like(decay)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    parts, keep, decay, ctx.rule, ctx.causal = inputs
    ctx.save_for_backward(*parts, keep, decay)


def _backward(ctx: Any, dout: Tensor) -> tuple[Any, ...]:
    *parts, keep, decay = ctx.saved_tensors
    if torch.is_grad_enabled():  # a gradient of this gradient will be needed
        *gradients, ddecay = _differentiable(ctx, dout)
    else:
        *gradients, ddecay = _attend_backward(dout, parts, keep, decay, ctx.rule, ctx.causal)
    return gradients, None, None if decay is None else ddecay, None, None


def _differentiable(ctx: Any, dout: Tensor) -> list[Tensor | None]:
    """The same gradients by the torch form, which can be differentiated again."""
    *parts, keep, decay = ctx.saved_tensors
    (q, k, v), mechanism = _three(parts), RuleBased(Rule.from_numbers(ctx.rule))
    out = mechanism.attend(q, k, v, keep, ctx.causal, decay)
    return gradients_again([out], [*parts, decay], [dout])


def gradients_again(
    outs: list[Tensor], inputs: list[Tensor | None], douts: list[Tensor]
) -> list[Tensor | None]:
    """Gradients that can be differentiated; None for inputs that need none."""
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    gradients = iter(torch.autograd.grad(outs, wanted, douts, create_graph=True, allow_unused=True))
    return [next(gradients) if x is not None and x.requires_grad else None for x in inputs]


_attend.register_autograd(_backward, setup_context=_save)


def _three(parts: Sequence[Tensor]) -> Sequence[Tensor]:
    """q, k and v, each [B, H, N, D]."""
    return parts if len(parts) == 3 else parts[0].permute(2, 0, 3, 1, 4).unbind()


def _gradients(parts: Sequence[Tensor]) -> list[Tensor]:
    """Empty tensors for the gradients, packed as the parts are."""
    if len(parts) == 1:
        return [torch.empty_like(parts[0], memory_format=torch.contiguous_format)]
    return [like_projected(part) for part in parts]


def like_projected(q: Tensor) -> Tensor:
    """[B, H, N, D] whose memory is [B, N, H, D], so that merging the heads is a view."""
    batch, heads, length, width = q.shape
    return q.new_empty(batch, length, heads, width).transpose(1, 2)


def _rows(x: Tensor) -> Tensor:
    """As it is if its last dimension is contiguous, which is all that the kernels ask for."""
    x = x.detach()
    return x if x.stride(-1) == 1 else x.contiguous()


def plain(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().contiguous()
