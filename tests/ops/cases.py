"""Random inputs for attention, and what it means that two forms of it agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from linrec import ops
from linrec.ops import reference

LINEAR = [name for name in ops.MECHANISMS if ops.has_state(name)]
LENGTHS = [1, 2, 31, 32, 33, 63, 64, 65, 200, pytest.param(1000, marks=pytest.mark.slow)]

Padding = Literal["none", "end", "start", "random", "all"]

# Each relative to the largest number of its tensor. float64: rounding alone. float32: the same
# after a thousand additions and a division by norms that may be small. bfloat16: its eight bits
# round outputs and gradients once (2^-9), and torch's softmax kernel its probabilities too.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 1e-2}
EVERY_PRECISION = tuple(TOLERANCE)


@dataclass(frozen=True)
class Case:
    q: Tensor  # [B, H, N, D], and so k and v
    k: Tensor
    v: Tensor
    keep: Tensor | None  # [B, N]
    decay: Tensor  # [H], log g

    @property
    def length(self) -> int:
        return self.q.shape[2]

    @property
    def kept(self) -> Tensor:
        """[B, N], also where nothing is padded."""
        every = torch.ones(self.q.shape[0], self.length, dtype=torch.bool)
        return every if self.keep is None else self.keep

    def to(self, dtype: torch.dtype) -> Case:
        """The decay is a parameter: nobody keeps it in bfloat16."""
        q, k, v = (x.to(dtype) for x in (self.q, self.k, self.v))
        wide = torch.promote_types(dtype, torch.float32)
        return replace(self, q=q, k=k, v=v, decay=self.decay.to(wide))

    def map(self, change: Callable[[Tensor], Tensor]) -> Case:
        """The same change to q, k and v."""
        return replace(self, q=change(self.q), k=change(self.k), v=change(self.v))

    def at(self, positions: slice | Tensor) -> Case:
        """The events at these places alone."""
        keep = None if self.keep is None else self.keep[:, positions]
        return replace(self.map(lambda x: x[:, :, positions]), keep=keep)

    def rows(self, rows: slice | Tensor) -> Case:
        keep = None if self.keep is None else self.keep[rows]
        return replace(self.map(lambda x: x[rows]), keep=keep)


def random_case(
    length: int,
    seed: int = 0,
    *,
    batch: int = 3,
    heads: int = 2,
    width: int = 8,
    dtype: torch.dtype = torch.float64,
    padding: Padding = "none",
) -> Case:
    rng = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(batch, heads, length, width, generator=rng) for _ in range(3))
    # numbers that every precision holds exactly, so that one oracle serves all three
    q, k, v = (x.bfloat16().to(dtype) for x in (q, k, v))
    spans = 2.0 ** torch.linspace(1, 8, heads)  # the shortest sees two events, the longest 256
    case = Case(q, k, v, random_keep(padding, batch, length, rng), -1 / spans)
    return case.to(dtype)


def random_keep(padding: Padding, batch: int, length: int, rng: torch.Generator) -> Tensor | None:
    """At least one event is kept in each row, unless all are padded."""
    if padding == "none":
        return None
    if padding == "all":
        return torch.zeros(batch, length, dtype=torch.bool)
    if padding == "random":
        keep = torch.rand(batch, length, generator=rng) < 0.6
        keep[:, torch.randint(length, (1,), generator=rng)] = True
        return keep
    kept = torch.randint(1, length + 1, (batch, 1), generator=rng)
    kept[0] = (length + 1) // 2  # a batch of one is padded too
    keep = torch.arange(length) < kept
    return keep if padding == "end" else keep.flip(1)


def attend(mechanism: str, case: Case, causal: bool, **changes: Any) -> Tensor:
    return ops.attend(
        mechanism, case.q, case.k, case.v, keep=case.keep, causal=causal,
        **{**decay_of(mechanism, case), **changes},
    )  # fmt: skip


def oracle(mechanism: str, case: Case, causal: bool) -> Tensor:
    return reference.attend(
        mechanism, case.q, case.k, case.v, keep=case.keep, causal=causal,
        **decay_of(mechanism, case),
    )  # fmt: skip


def resume(mechanism: str, case: Case, state: ops.State) -> tuple[Tensor, ops.State]:
    return ops.resume(
        mechanism, case.q, case.k, case.v, state, keep=case.keep, **decay_of(mechanism, case)
    )


def start(mechanism: str, case: Case) -> ops.State:
    batch, heads, _, width = case.q.shape
    return ops.start(mechanism, batch, heads, width, dtype=case.q.dtype)


def decay_of(mechanism: str, case: Case) -> dict[str, Tensor]:
    return {"decay": case.decay} if ops.takes_decay(mechanism) else {}


def values_and_grads(form: Callable[[Case], Tensor], case: Case) -> dict[str, Tensor]:
    """The output, and the gradients for one cotangent that is the same in every precision."""
    names = ("q", "k", "v", "decay")
    leaves = {name: getattr(case, name).detach().clone().requires_grad_() for name in names}
    out = form(replace(case, **leaves))
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    # zero times the leaves: an all-padded oracle or a form without decay may not depend on them
    loss = (out * cotangent.to(out.dtype)).sum() + sum(0 * x.sum() for x in leaves.values())
    grads = torch.autograd.grad(loss, list(leaves.values()))
    actual = {"out": out.detach(), **dict(zip(names, grads, strict=True))}
    return {name: x.double() for name, x in actual.items()}


def assert_same_values_and_grads(
    fast: Callable[[Case], Tensor],
    slow: Callable[[Case], Tensor],
    case: Case,
    precisions: tuple[torch.dtype, ...] = EVERY_PRECISION,
) -> None:
    """`fast` in each precision gives what `slow` gives once, in float64."""
    expected = values_and_grads(slow, case.to(torch.float64))
    for dtype in precisions:
        actual = values_and_grads(fast, case.to(dtype))
        for name, value in expected.items():
            # a unit vector of one feature has no gradient but rounding: v's scale is the measure
            scale = max(value.abs().max(), expected["out" if name == "out" else "v"].abs().max())
            error = (actual[name] - value).abs().max()
            assert error <= TOLERANCE[dtype] * scale, (
                f"{name} in {dtype} is off by {error:.2g} where its scale is {scale:.2g}"
            )


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
