"""Feature maps, norms and normalisers inside a Triton kernel, with their gradients.

All blocks are [D, C] in float32, D features of C positions (blocks.py says why). The rule's fields
arrive as constants, so that a kernel holds only the code of its own rule.
"""

import triton
import triton.language as tl

from linrec.ops.mechanism import EPSILON as EPSILON_VALUE
from linrec.ops.rule import FeatureMap, Normaliser

EPSILON = tl.constexpr(EPSILON_VALUE)
IDENTITY = tl.constexpr(int(FeatureMap.IDENTITY))
ELU_PLUS_ONE = tl.constexpr(int(FeatureMap.ELU_PLUS_ONE))
COLUMN_NORM = tl.constexpr(int(Normaliser.COLUMN_NORM))
COUNT = tl.constexpr(int(Normaliser.COUNT))
ROW_SUM = tl.constexpr(int(Normaliser.ROW_SUM))


@triton.jit
def elu(x):
    """Exact near zero too, where exp(x) - 1 cancels; NaN stays NaN."""
    below = tl.where(x > 0, 0.0, x)
    series = 1 / 24 + below * (1 / 120 + below * (1 / 720))
    series = below * (1.0 + below * (0.5 + below * (1 / 6 + below * series)))
    return tl.where(x > 0, x, tl.where(below > -0.25, series, tl.exp(below) - 1.0))


@triton.jit
def features(x, real, MAP: tl.constexpr, UNIT: tl.constexpr, SCALE: tl.constexpr):
    """The features and the factor of each position; zeros where not `real`."""
    value = x
    if MAP != IDENTITY:
        value = elu(x)
    if MAP == ELU_PLUS_ONE:
        value = value + 1.0
    value = tl.where(real, value, 0.0)
    factor = tl.sum(value * value, 0)
    if UNIT:
        factor = SCALE * tl.rsqrt(factor + EPSILON)
    else:
        factor = tl.zeros_like(factor) + SCALE
    return value * factor[None, :], factor


@triton.jit
def features_backward(y, factor, dy, MAP: tl.constexpr, UNIT: tl.constexpr, SCALE: tl.constexpr):
    """dx of y, factor = features(x)."""
    if UNIT:  # the gradient of the norm removes what lies along y
        dy = dy - (tl.sum(dy * y, 0) / (SCALE * SCALE))[None, :] * y
    dx = dy * factor[None, :]
    if MAP != IDENTITY:
        value = y / factor[None, :]
        if MAP == ELU_PLUS_ONE:
            value = value - 1.0
        dx = dx * tl.where(value > 0, 1.0, value + 1.0)
    return dx


@triton.jit
def column(f, NORM: tl.constexpr):
    """What each key adds to the sums that the normaliser divides by."""
    if NORM == ROW_SUM:
        return f
    return f * f


@triton.jit
def column_backward(f, dx, NORM: tl.constexpr):
    if NORM == ROW_SUM:
        return dx
    return 2.0 * f * dx


@triton.jit
def divide(u, z, n, NORM: tl.constexpr):
    """w = u divided by the normaliser of the sums z [D, C] and counts n [C]; and the inverse."""
    inverse = tl.zeros_like(u) + 1.0
    if NORM == COLUMN_NORM:
        inverse = tl.rsqrt(n[None, :] * z + EPSILON)
    elif NORM == COUNT:
        inverse = inverse * tl.rsqrt(tl.where(n > 1.0, n, 1.0))[None, :]
    elif NORM == ROW_SUM:
        inverse = inverse / (tl.sum(u * z, 0) + EPSILON)[None, :]
    return u * inverse, inverse


@triton.jit
def divide_backward(u, z, n, w, inverse, dw, NORM: tl.constexpr):
    """du, dz and dn of w = divide(u, z, n)."""
    du = dw * inverse
    dz = tl.zeros_like(u)
    dn = tl.zeros_like(n)
    if NORM == COLUMN_NORM:
        each = -0.5 * du * w * inverse
        dn = tl.sum(each * z, 0)
        dz = each * n[None, :]
    elif NORM == COUNT:
        dn = tl.where(n >= 1.0, -0.5 * tl.sum(dw * w, 0) / tl.where(n > 1.0, n, 1.0), 0.0)
    elif NORM == ROW_SUM:
        through = -tl.sum(dw * w, 0)[None, :] * inverse
        dz = through * u
        du = du + through * z
    return du, dz, dn
