"""What the kernels share: positions, decays, loads, stores and products of blocks.

A segment is a run of chunks of C positions that one program walks through. The age of a position is
the number of real events up to it; event m counts at t with the weight exp(rate |age_t - age_m|).

Blocks are [D, C], features times positions. Triton divides the rows of a product among the warps
and gives each of them the whole second operand. So the state, the largest operand, comes first and
is divided, and what every warp holds of a block shrinks with C.
"""

import triton
import triton.language as tl

from linrec.ops.triton import is_interpreted

INTERPRETED = tl.constexpr(is_interpreted())
CAUSAL = tl.constexpr(0)
TOTAL = tl.constexpr(1)  # bidirectional, every event counts one: all positions share one state
SPREAD = tl.constexpr(2)  # bidirectional with a decay: a state from the left, one from the right


@triton.jit
def events_before(age, position, N, HAS_KEEP: tl.constexpr):
    """How many real events there are before a position."""
    position = tl.minimum(position, N)
    if HAS_KEEP:
        return tl.load(age + position - 1, mask=position > 0, other=0)
    return position


@triton.jit
def ages(keep, age, at, N, HAS_KEEP: tl.constexpr):
    """Which positions are real, and their ages; positions past the end add no age."""
    inside = at < N
    if HAS_KEEP:
        real = tl.load(keep + at, mask=inside, other=0) != 0
        return real, tl.load(age + tl.minimum(at, N - 1))
    return inside, tl.minimum(at + 1, N)


@triton.jit
def decays(rate, now, before, after, DECAY: tl.constexpr):
    """From `before` to each age and from each age to `after`: [C], [C]."""
    if DECAY:
        return (
            tl.exp(rate * (now - before).to(tl.float32)),
            tl.exp(rate * (after - now).to(tl.float32)),
        )
    one = tl.zeros_like(now).to(tl.float32) + 1.0
    return one, one


@triton.jit
def weights(rate, now, C: tl.constexpr, MODE: tl.constexpr, DECAY: tl.constexpr):
    """Of event m at t inside a chunk: [m, t]."""
    order = tl.arange(0, C)
    visible = order[:, None] <= order[None, :]
    if DECAY:
        gap = (now[None, :] - now[:, None]).to(tl.float32)
        if MODE == SPREAD:
            return tl.exp(rate * tl.abs(gap))
        # masked before exp: a future event's exponent is positive and may overflow
        return tl.where(visible, tl.exp(rate * tl.where(visible, gap, 0.0)), 0.0)
    return tl.where(visible, 1.0, 0.0)


@triton.jit
def is_real(real, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """[BLOCK, C]: the numbers of real events that are there."""
    return (tl.arange(0, BLOCK) < WIDTH)[:, None] & real[None, :]


@triton.jit
def load_rows(x, stride, at, mask, BLOCK: tl.constexpr):
    where = at[None, :] * stride + tl.arange(0, BLOCK)[:, None]
    return tl.load(x + where, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_rows(x, stride, at, value, N, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    where = at[None, :] * stride + tl.arange(0, BLOCK)[:, None]
    if INTERPRETED and x.dtype.element_ty == tl.bfloat16:
        value = rounded(value, 16)  # the interpreter cuts the bits off
    tl.store(x + where, value.to(x.dtype.element_ty), mask=is_real(at < N, WIDTH, BLOCK))


@triton.jit
def load_operand(x, stride, at, mask, BLOCK: tl.constexpr):
    """Rows that are only multiplied: bfloat16 numbers stay as they are, and need no splitting."""
    where = at[None, :] * stride + tl.arange(0, BLOCK)[:, None]
    value = tl.load(x + where, mask=mask, other=0.0)
    if (x.dtype.element_ty != tl.bfloat16) or INTERPRETED:
        value = value.to(tl.float32)
    return value


@triton.jit
def product(a, b, OPERAND: tl.constexpr, PRECISION: tl.constexpr):
    """a @ b, added up in float32."""
    if INTERPRETED:
        return interpreted_product(a, b, OPERAND, PRECISION)
    if (PRECISION == "bf16x3") and ((a.dtype == tl.bfloat16) or (b.dtype == tl.bfloat16)):
        high_a, high_b = a.to(tl.bfloat16), b.to(tl.bfloat16)
        total = tl.dot(high_a, high_b)
        if a.dtype != tl.bfloat16:
            total = tl.dot((a - high_a.to(tl.float32)).to(tl.bfloat16), high_b, total)
        if b.dtype != tl.bfloat16:
            total = tl.dot(high_a, (b - high_b.to(tl.float32)).to(tl.bfloat16), total)
    else:
        total = tl.dot(a.to(OPERAND), b.to(OPERAND), input_precision=PRECISION)
    return total


@triton.jit
def interpreted_product(a, b, OPERAND: tl.constexpr, PRECISION: tl.constexpr):
    """Rounds as a device does. Triton's interpreter ignores the precision of a product, and
    multiplies the bits of bfloat16 numbers.
    """
    if tl.bfloat16 == OPERAND:
        return tl.dot(rounded(a, 16), rounded(b, 16))
    if PRECISION == "bf16x3":
        high_a, high_b = rounded(a, 16), rounded(b, 16)
        low_a, low_b = rounded(a - high_a, 16), rounded(b - high_b, 16)
        return tl.dot(high_a, high_b) + (tl.dot(high_a, low_b) + tl.dot(low_a, high_b))
    if PRECISION == "tf32":
        return tl.dot(rounded(a, 13), rounded(b, 13))
    return tl.dot(a, b)


@triton.jit
def rounded(x, DROPPED: tl.constexpr):
    """float32 to the nearest number without the last bits, an even one if two are as near."""
    bits = x.to(tl.uint32, bitcast=True)
    bits += (1 << (DROPPED - 1)) - 1 + ((bits >> DROPPED) & 1)
    bits = (bits >> DROPPED) << DROPPED
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def load_state(state, BLOCK: tl.constexpr, TURNED: tl.constexpr):
    """Memory [BLOCK, BLOCK], or its transpose, column [BLOCK] and count of one flat state."""
    each = tl.arange(0, BLOCK)
    if TURNED:
        memory = tl.load(state + each[None, :] * BLOCK + each[:, None])
    else:
        memory = tl.load(state + each[:, None] * BLOCK + each[None, :])
    rest = state + BLOCK * BLOCK
    return memory, tl.load(rest + each), tl.load(rest + BLOCK)


@triton.jit
def store_state(state, memory, column, count, BLOCK: tl.constexpr):
    each = tl.arange(0, BLOCK)
    tl.store(state + each[:, None] * BLOCK + each[None, :], memory)
    rest = state + BLOCK * BLOCK
    tl.store(rest + each, column)
    tl.store(rest + BLOCK + each, tl.where(each == 0, count, 0.0))


@triton.jit
def no_state(BLOCK: tl.constexpr):
    zeros = tl.zeros((BLOCK, BLOCK), tl.float32)
    return zeros, tl.zeros((BLOCK,), tl.float32), tl.full((), 0.0, tl.float32)
