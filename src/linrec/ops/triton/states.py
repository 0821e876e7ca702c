"""The states of segments, and the scan that carries them from segment to segment.

A flat state has BLOCK * (BLOCK + 2) numbers: the memory x^T y, the column sums, the count. Those of
the backward pass have the same shape: gradients of memory, column and count.
"""

import triton
import triton.language as tl

from linrec.ops.triton.blocks import (
    ages,
    decays,
    events_before,
    is_real,
    load_rows,
    product,
    store_state,
)
from linrec.ops.triton.features import column, features


@triton.jit
def segment_states(
    x, y, dcolumn, dcount, ended, begun, keep, age, rate,
    x_b, x_h, x_n, y_b, y_h, y_n, N, H, segment,
    MAP: tl.constexpr, NORM: tl.constexpr, UNIT_KEYS: tl.constexpr,
    GRADIENTS: tl.constexpr, ENDED: tl.constexpr, BEGUN: tl.constexpr, COLUMN: tl.constexpr,
    DECAY: tl.constexpr, HAS_KEEP: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, C: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What one segment alone adds up: decayed to its end (ended), back to its start (begun).

    x, y: keys and values; with GRADIENTS normalised queries and the output's gradients, and dcolumn
    and dcount those of the normaliser's sums.
    """
    s, bh = tl.program_id(1), tl.program_id(0).to(tl.int64)
    b, h = bh // H, bh % H
    x += b * x_b + h * x_h
    y += b * y_b + h * y_h
    keep += b * N
    age += b * N
    r = tl.load(rate + h) if DECAY else 0.0
    start = s * segment
    stop = tl.minimum(start + segment, N)
    before = events_before(age, start, N, HAS_KEEP)
    after = events_before(age, stop, N, HAS_KEEP)
    to_end = tl.zeros((BLOCK, BLOCK), tl.float32)
    to_start = tl.zeros((BLOCK, BLOCK), tl.float32)
    end_column = tl.zeros((BLOCK,), tl.float32)
    start_column = tl.zeros((BLOCK,), tl.float32)
    end_count = tl.full((), 0.0, tl.float32)
    start_count = tl.full((), 0.0, tl.float32)
    for first in range(start, stop, C):
        at = first + tl.arange(0, C)
        real, now = ages(keep, age, at, N, HAS_KEEP)
        real = real & (at < stop)
        mask = is_real(real, WIDTH, BLOCK)
        from_start, until_end = decays(r, now, before, after, DECAY)
        a = load_rows(x, x_n, at, mask, BLOCK)
        values = load_rows(y, y_n, at, mask, BLOCK)
        if GRADIENTS:
            if COLUMN:
                z = load_rows(dcolumn + bh * N * WIDTH, WIDTH, at, mask, BLOCK)
            n = tl.load(dcount + bh * N + at, mask=real, other=0.0)
        else:
            a, _ = features(a, mask, MAP, UNIT_KEYS, 1.0)
            if COLUMN:
                z = column(a, NORM)
            n = real.to(tl.float32)
        if ENDED:
            to_end += product(tl.trans(a * until_end[:, None]), values, OPERAND, PRECISION)
            if COLUMN:
                end_column += tl.sum(z * until_end[:, None], 0)
            end_count += tl.sum(n * until_end, 0)
        if BEGUN:
            to_start += product(tl.trans(a * from_start[:, None]), values, OPERAND, PRECISION)
            if COLUMN:
                start_column += tl.sum(z * from_start[:, None], 0)
            start_count += tl.sum(n * from_start, 0)
    place = (bh * tl.num_programs(1) + s) * BLOCK * (BLOCK + 2)
    if ENDED:
        store_state(ended + place, to_end, end_column, end_count, BLOCK)
    if BEGUN:
        store_state(begun + place, to_start, start_column, start_count, BLOCK)


@triton.jit
def scan(
    states, initial, final, age, rate, N, H, segment, segments,
    REVERSE: tl.constexpr, HAS_INITIAL: tl.constexpr, DECAY: tl.constexpr,
    HAS_KEEP: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Replace what each segment adds by the state before it, or after it if REVERSE; write the last.

    states: [B * H, segments, SIZE]; initial, final: [B * H, SIZE]. All numbers of a state decay
    alike, so a program takes a tile of them.
    """
    bh = tl.program_id(0).to(tl.int64)
    each = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = each < SIZE
    age += bh // H * N
    r = tl.load(rate + bh % H) if DECAY else 0.0
    carried = tl.zeros((TILE,), tl.float32)
    if HAS_INITIAL:
        carried = tl.load(initial + bh * SIZE + each, mask=inside, other=0.0)
    for step in range(segments):
        s = segments - 1 - step if REVERSE else step
        place = states + (bh * segments + s) * SIZE + each
        added = tl.load(place, mask=inside, other=0.0)
        tl.store(place, carried, mask=inside)
        if DECAY:
            before = events_before(age, s * segment, N, HAS_KEEP)
            after = events_before(age, (s + 1) * segment, N, HAS_KEEP)
            carried = carried * tl.exp(r * (after - before).to(tl.float32))
        carried += added
    tl.store(final + bh * SIZE + each, carried, mask=inside)
