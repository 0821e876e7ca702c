"""Attention as pure functions of tensors: one name per mechanism, one signature for all.

B batch, H heads, N positions, D head width. q, k, v: [B, H, N, D]. keep: [B, N] bool, True on real
events; a padded event adds nothing anywhere and its own output is zero. decay: log g, one number
per head, for mechanisms that take one (`linrec-decay`); without it nothing is forgotten.

Sums and norms are taken in float32 (float64 for float64 inputs) whatever the inputs' precision.
Kernels compute most of it, compiled ones on the CPU and Triton's on GPUs (`kernels` names them,
`without_kernels` compares).

    q, k, v = torch.randn(3, 8, 2, 200, 32)
    out = ops.attend("linrec-decay", q, k, v, causal=True, decay=torch.tensor([-0.5, -0.001]))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linrec.ops import fused, resuming
from linrec.ops.efficient import EfficientAttention
from linrec.ops.fused import without_kernels
from linrec.ops.linear_transformer import LinearTransformer
from linrec.ops.linrec import (
    LinRec,
    LinRecDecay,
    LinRecRowwise,
    LinRecWithoutElu,
    LinRecWithoutNorm,
)
from linrec.ops.mechanism import LinearMechanism, State, no_state
from linrec.ops.running_mean import MeanState, running_mean, start_mean
from linrec.ops.softmax import Softmax
from linrec.ops.spans import initial_decay_logits
from linrec.types import InputError

__all__ = [
    "MECHANISMS",
    "MeanState",
    "State",
    "attend",
    "attend_projected",
    "attention_matrix",
    "factors",
    "find",
    "has_state",
    "initial_decay_logits",
    "kernels",
    "resume",
    "running_mean",
    "start",
    "start_mean",
    "step",
    "takes_decay",
    "without_kernels",
]

MECHANISMS: dict[str, LinearMechanism | Softmax] = {
    "softmax": Softmax(),
    "linrec": LinRec(),
    "linrec-decay": LinRecDecay(),
    "linrec-rowwise": LinRecRowwise(),
    "linear-transformer": LinearTransformer(),
    "efficient": EfficientAttention(),
    "linrec-without-norm": LinRecWithoutNorm(),
    "linrec-without-elu": LinRecWithoutElu(),
}

# a finite-difference check of the decay's gradient at g = 1 steps just above zero
_DECAY_SLACK = 1e-5


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
    """Let each event see every kept event, or with `causal` those up to itself. -> [B, H, N, D]

    Args:
        mechanism: A name in `MECHANISMS`.
        q: Queries [B, H, N, D].
        k: Keys [B, H, N, D].
        v: Values [B, H, N, D].
        keep: [B, N] bool, True on real events; None: all are.
        causal: No event sees a later one.
        decay: log g of each head [H], for `linrec-decay`.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 10, 8)
        >>> keep = torch.arange(10) < torch.tensor([[10], [6]])  # the second has 6 events
        >>> ops.attend("linrec", q, k, v, keep=keep, causal=True).shape
        torch.Size([2, 4, 10, 8])
    """
    implementation = find(mechanism)
    _check_shapes(q, k, v, keep)
    rate = _check_decay(mechanism, decay, q)
    if not q.shape[2]:
        return torch.zeros_like(v)
    if implementation.rule is not None and fused.covers(implementation.rule, q, k, v):
        return fused.attend(implementation.rule, [q, k, v], keep, causal, rate)
    return implementation.attend(q, k, v, keep, causal, rate)


def attend_projected(
    mechanism: str,
    projected: Tensor,
    *,
    keep: Tensor | None = None,
    causal: bool = False,
    decay: Tensor | None = None,
) -> Tensor:
    """`attend` for q, k and v as one projection leaves them, [B, N, 3, H, D]. -> [B, H, N, D]

    Examples:
        >>> projected = torch.randn(2, 10, 3, 4, 8)
        >>> q, k, v = projected.permute(2, 0, 3, 1, 4)
        >>> out = ops.attend_projected("linrec", projected)
        >>> torch.allclose(out, ops.attend("linrec", q, k, v), atol=1e-5)
        True
    """
    if projected.dim() != 5 or projected.shape[2] != 3:
        raise InputError(
            f"projected must be [batch, length, 3, heads, width], not {tuple(projected.shape)}"
        )
    q, k, v = projected.permute(2, 0, 3, 1, 4)
    rule = find(mechanism).rule
    if rule is None or not fused.covers(rule, q, k, v) or not q.shape[2]:
        return attend(mechanism, q, k, v, keep=keep, causal=causal, decay=decay)
    _check_shapes(q, k, v, keep)
    rate = _check_decay(mechanism, decay, q)
    return fused.attend(rule, [projected], keep, causal, rate)


def attention_matrix(
    mechanism: str,
    q: Tensor,
    k: Tensor,
    *,
    keep: Tensor | None = None,
    causal: bool = False,
    decay: Tensor | None = None,
) -> Tensor:
    """The explicit B' [B, H, N, N] with attend(...) = B' V. For analysis: O(N^2) memory.

    Examples:
        >>> q, k, v = torch.randn(3, 1, 2, 5, 8)
        >>> matrix = ops.attention_matrix("linrec", q, k, causal=True)
        >>> torch.allclose(matrix @ v, ops.attend("linrec", q, k, v, causal=True), atol=1e-5)
        True
    """
    each = torch.eye(k.shape[2], dtype=k.dtype, device=k.device).expand(*k.shape[:2], -1, -1)
    return attend(mechanism, q, k, each, keep=keep, causal=causal, decay=decay)


def factors(
    mechanism: str, q: Tensor, k: Tensor, *, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(Q_rho, K_rho), each [B, H, N, D], with Q_rho K_rho^T = B' of the bidirectional form.

    Examples:
        >>> q, k = torch.randn(2, 1, 2, 5, 8)
        >>> query, key = ops.factors("linrec", q, k)
        >>> torch.allclose(query @ key.mT, ops.attention_matrix("linrec", q, k), atol=1e-5)
        True
    """
    implementation = find(mechanism)
    if isinstance(implementation, Softmax):
        raise InputError(
            "softmax does not factor into Q_rho and K_rho; use attention_matrix, or factors of a "
            "linear mechanism such as linrec"
        )
    _check_shapes(q, k, k, keep)
    return implementation.factors(q, k, keep)


def start(mechanism: str, batch: int, heads: int, width: int, **dtype_device: Any) -> State:
    """The state of users without events; its sums are float32 or wider.

    Examples:
        >>> ops.start("linrec", batch=2, heads=4, width=8).memory.shape
        torch.Size([2, 4, 8, 8])
    """
    dtype = dtype_device.pop("dtype", None) or torch.get_default_dtype()
    wide = torch.promote_types(dtype, torch.float32)
    return _with_state(mechanism).start(batch, heads, width, dtype=wide, **dtype_device)


def step(
    mechanism: str, q: Tensor, k: Tensor, v: Tensor, state: State, *, decay: Tensor | None = None
) -> tuple[Tensor, State]:
    """One more event per user: q, k, v [B, H, 1, D]; O(D^2) whatever the history.

    Examples:
        >>> state = ops.start("linrec", batch=2, heads=4, width=8)
        >>> q, k, v = torch.randn(3, 2, 4, 1, 8)
        >>> out, state = ops.step("linrec", q, k, v, state)
        >>> out.shape
        torch.Size([2, 4, 1, 8])
    """
    if q.shape[2] != 1:
        raise InputError(f"step takes one event at a time, not {q.shape[2]}; resume takes many")
    return resume(mechanism, q, k, v, state, decay=decay)


def resume(
    mechanism: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: State,
    *,
    keep: Tensor | None = None,
    decay: Tensor | None = None,
) -> tuple[Tensor, State]:
    """Many more events per user at once: the causal form that continues from `state`.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 10, 8)
        >>> state = ops.start("linrec", batch=2, heads=4, width=8)
        >>> first, state = ops.resume("linrec", q[:, :, :6], k[:, :, :6], v[:, :, :6], state)
        >>> rest, state = ops.resume("linrec", q[:, :, 6:], k[:, :, 6:], v[:, :, 6:], state)
        >>> whole = ops.attend("linrec", q, k, v, causal=True)
        >>> torch.allclose(torch.cat([first, rest], 2), whole, atol=1e-5)
        True
    """
    implementation = _with_state(mechanism)
    _check_shapes(q, k, v, keep)
    rate = _check_decay(mechanism, decay, q)
    if not q.shape[2]:
        return torch.zeros_like(v), state
    rule = implementation.rule
    if rule is not None and resuming.covers(rule, q, k, v, state):
        return resuming.resume(rule, [q, k, v], keep, rate, state)
    return implementation.resume(q, k, v, keep, rate, state)


def has_state(mechanism: str) -> bool:
    """Whether the causal form can be continued from a state of fixed size.

    Examples:
        >>> ops.has_state("linrec"), ops.has_state("softmax")
        (True, False)
    """
    return not isinstance(find(mechanism), Softmax)


def takes_decay(mechanism: str) -> bool:
    """Whether heads may forget, by the argument `decay`.

    Examples:
        >>> [name for name in ops.MECHANISMS if ops.takes_decay(name)]
        ['linrec-decay']
    """
    return find(mechanism).takes_decay


def kernels(mechanism: str | None = None, *, device: str = "cpu") -> str:
    """Which kernels run: "avx512", "avx2" or "portable" on the CPU, "triton" and its version on a
    GPU, or "off: " and the reason.

    Args:
        mechanism: Whether they run for it.
        device: "cpu" or "cuda", which is also torch's name for AMD's GPUs.

    Examples:
        >>> ops.kernels("efficient").split(":")[0]
        'off'
    """
    kind = torch.device(device).type
    running = fused.running(kind)
    if running.startswith("off") or mechanism is None:
        return running
    if fused.has_kernel(find(mechanism).rule, kind):
        return running
    return f"off: there is none for {mechanism}"


def find(mechanism: str) -> LinearMechanism | Softmax:
    """The mechanism of that name.

    Examples:
        >>> type(ops.find("linrec")).__name__
        'LinRec'
    """
    if mechanism not in MECHANISMS:
        raise InputError(f"unknown attention {mechanism!r}; choose from {', '.join(MECHANISMS)}")
    return MECHANISMS[mechanism]


def _with_state(mechanism: str) -> LinearMechanism:
    implementation = find(mechanism)
    if isinstance(implementation, Softmax):
        raise no_state(mechanism)
    return implementation


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> None:
    if q.dim() != 4 or q.shape != k.shape or q.shape[:3] != v.shape[:3]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise InputError(f"q, k and v must be [batch, heads, length, width], not {shapes}")
    if keep is not None and (keep.dtype != torch.bool or keep.shape != (q.shape[0], q.shape[2])):
        raise InputError(
            f"keep must be a bool tensor [batch, length] = {(q.shape[0], q.shape[2])}, "
            f"not {keep.dtype} {tuple(keep.shape)}"
        )


def _check_decay(mechanism: str, decay: Tensor | None, q: Tensor) -> Tensor | None:
    if decay is None:
        return None
    if not takes_decay(mechanism):
        raise InputError(f"{mechanism} takes no decay; linrec-decay does")
    decay = torch.as_tensor(decay, device=q.device)
    if decay.dim() == 0:
        decay = decay.expand(q.shape[1])
    if decay.shape != (q.shape[1],):
        raise InputError(
            f"decay must hold log g for each of the {q.shape[1]} heads, not {tuple(decay.shape)}"
        )
    if _is_readable(decay) and bool((decay > _DECAY_SLACK).any()):
        raise InputError("decay is log g with 0 < g <= 1, so none of its numbers may be positive")
    return decay


def _is_readable(x: Tensor) -> bool:
    """On a GPU the answer would have to be waited for, at every step of a training."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()
