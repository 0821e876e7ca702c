"""How one call is cut into segments of chunks, and what a launch consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from linrec.ops.rule import Normaliser, Rule
from linrec.ops.triton import blocks

CAUSAL: int = blocks.CAUSAL.value
TOTAL: int = blocks.TOTAL.value
SPREAD: int = blocks.SPREAD.value
# a longer segment would save no more traffic, and the gradient of a decay would be rounded more
LONGEST_SEGMENT = 1024


class Config(NamedTuple):
    """What may be tuned: positions per chunk, warps per program, stages of the load pipeline."""

    chunk: int
    warps: int
    stages: int


class Precision(NamedTuple):
    """How products are computed; sums are in float32 always."""

    operand: Any  # the type of a product's operands
    products: str  # `input_precision` of tl.dot
    columns: str  # the same for the sums that normalisers divide by


@dataclass(frozen=True)
class Launch:
    kernel: Any
    grid: tuple[int, int]
    arguments: dict[str, Any]  # tensors and numbers
    constants: dict[str, Any]
    config: Config

    def run(self) -> None:
        self.kernel[self.grid](
            **self.arguments,
            **self.constants,
            num_warps=self.config.warps,
            num_stages=self.config.stages,
        )


@dataclass(frozen=True)
class Plan:
    """One call: its tensors, and how its sequences are cut into segments of chunks."""

    rule: Rule
    q: Tensor  # [B, H, N, D], and so k and v; the last dimension contiguous
    k: Tensor
    v: Tensor
    keep: Tensor | None  # [B, N] bool
    age: Tensor | None  # [B, N] int32, real events up to each position; with keep
    rate: Tensor | None  # [H] float32
    causal: bool
    config: Config
    precision: Precision
    programs: int  # how many keep the device busy
    initial: Tensor | None = None  # [B * H, size], a flat state

    @property
    def mode(self) -> int:
        if self.causal:
            return CAUSAL
        return TOTAL if self.rate is None else SPREAD

    @property
    def sequences(self) -> int:
        return self.q.shape[0] * self.q.shape[1]

    @property
    def length(self) -> int:
        return self.q.shape[2]

    @property
    def width(self) -> int:
        return self.q.shape[3]

    @property
    def block(self) -> int:
        return block_of(self.width)

    @property
    def segment(self) -> int:
        """Positions per segment: as long as possible while every processor has work."""
        chunk = self.config.chunk
        if self.mode == SPREAD:
            return chunk
        chunks = cdiv(self.length, chunk)
        wanted = min(max(cdiv(self.programs, self.sequences), 1), chunks)
        return min(cdiv(chunks, wanted) * chunk, max(LONGEST_SEGMENT, chunk))

    @property
    def segments(self) -> int:
        return cdiv(self.length, self.segment)

    @property
    def has_state(self) -> bool:
        """Whether a segment needs to know of others."""
        return self.mode != CAUSAL or self.segments > 1 or self.initial is not None

    @property
    def columns(self) -> bool:
        """Whether the normaliser divides by sums of columns."""
        return self.rule.normaliser in (Normaliser.COLUMN_NORM, Normaliser.ROW_SUM)

    def new_states(self) -> Tensor:
        return self.q.new_empty(
            self.sequences, self.segments, state_size(self.width), dtype=torch.float32
        )

    def new_state(self) -> Tensor:
        return self.q.new_empty(self.sequences, state_size(self.width), dtype=torch.float32)


@dataclass(frozen=True)
class Carried:
    """The states around each segment; None where the mode has none."""

    left: Tensor | None  # what earlier segments add up to; the total in mode TOTAL
    right: Tensor | None  # what later segments add up to
    left_final: Tensor | None  # after the last segment
    right_final: Tensor | None  # before the first


class Saved(NamedTuple):
    """What the pass over queries leaves for the pass over keys, per position, in float32: where a
    column is the sum of few events, their gradients are small differences of large numbers.
    """

    w: Tensor  # [B * H, N, D], normalised queries
    dcolumn: Tensor  # [B * H, N, D]
    dcount: Tensor  # [B * H, N]


def block_of(width: int) -> int:
    """The width of a block: tensor cores multiply no less than 16 numbers."""
    return max(16, 1 << (width - 1).bit_length())


def state_size(width: int) -> int:
    block = block_of(width)
    return block * (block + 2)


def cdiv(a: int, b: int) -> int:
    quotient: int = triton.cdiv(a, b)
    return quotient
