"""The three passes over the events: outputs, gradients of queries, gradients of keys and values.

    f = key features     S_t = g S_(t-1) + f v^T    z_t = g z_(t-1) + f^2    n_t = g n_(t-1) + 1
    u = query features   w = u / sqrt(n z)          out_t = w S_t

backwards, over R_t = g R_(t+1) + w_t dout_t^T:  dw = S dout, df = R v + 2 f Z, dv = R^T f, where Z
is the same sum of dz. One program walks through one segment, the state in registers; what comes
from other segments has been added up in `left` and `right` (states.py).

The gradient of log g is the sum over pairs of events of distance * what one gave the other. Seen
from a segment, a pair begins inside or at its start and ends inside or at its end, so each segment
adds age * (received - given), with ages from its own start, and its length * what crosses its end.
Distances from the start of the sequence would make the rounding of long histories count.
"""

import triton
import triton.language as tl

from linrec.ops.triton.blocks import (
    CAUSAL,
    SPREAD,
    TOTAL,
    ages,
    decays,
    events_before,
    is_real,
    load_rows,
    load_state,
    no_state,
    product,
    store_rows,
    weights,
)
from linrec.ops.triton.features import (
    COLUMN_NORM,
    ROW_SUM,
    column,
    column_backward,
    divide,
    divide_backward,
    features,
    features_backward,
)


@triton.jit
def sums(
    f, real, w, from_start, to_end, z, n, z_right, n_right,
    NORM: tl.constexpr, MODE: tl.constexpr, COLUMN_PRECISION: tl.constexpr,
):  # fmt: skip
    """What the normaliser divides by at each position of a chunk: [C, BLOCK], [C]."""
    each_z = tl.zeros_like(f) + z[None, :]
    each_n = tl.zeros_like(from_start) + n
    if MODE != TOTAL:
        each_n = each_n * from_start + tl.sum(w * real.to(tl.float32)[None, :], 1)
        if (NORM == COLUMN_NORM) or (NORM == ROW_SUM):
            within = product(w, column(f, NORM), tl.float32, COLUMN_PRECISION)
            each_z = each_z * from_start[:, None] + within
    if MODE == SPREAD:
        each_n += n_right * to_end
        each_z += z_right[None, :] * to_end[:, None]
    return each_z, each_n


@triton.jit
def outputs(
    q, k, v, out, left, right, keep, age, rate,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n, N, H, segment,
    MAP: tl.constexpr, NORM: tl.constexpr, UNIT_QUERIES: tl.constexpr, UNIT_KEYS: tl.constexpr,
    SCALE: tl.constexpr, MODE: tl.constexpr, DECAY: tl.constexpr, HAS_KEEP: tl.constexpr,
    HAS_STATE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, C: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr, COLUMN_PRECISION: tl.constexpr,
):  # fmt: skip
    s, bh = tl.program_id(1), tl.program_id(0).to(tl.int64)
    b, h = bh // H, bh % H
    q += b * q_b + h * q_h
    k += b * k_b + h * k_h
    v += b * v_b + h * v_h
    out += b * o_b + h * o_h
    keep += b * N
    age += b * N
    r = tl.load(rate + h) if DECAY else 0.0
    SIZE: tl.constexpr = BLOCK * (BLOCK + 2)
    place = bh * SIZE if MODE == TOTAL else (bh * tl.num_programs(1) + s) * SIZE
    if HAS_STATE:
        state, z, n = load_state(left + place, BLOCK, False)
    else:
        state, z, n = no_state(BLOCK)
    z_right, n_right = z, n
    start = s * segment
    stop = tl.minimum(start + segment, N)
    for first in range(start, stop, C):
        at = first + tl.arange(0, C)
        real, now = ages(keep, age, at, N, HAS_KEEP)
        mask = is_real(real, WIDTH, BLOCK)
        before = events_before(age, first, N, HAS_KEEP)
        after = events_before(age, first + C, N, HAS_KEEP)
        from_start, to_end = decays(r, now, before, after, DECAY)
        u, _ = features(load_rows(q, q_n, at, mask, BLOCK), mask, MAP, UNIT_QUERIES, SCALE)
        if MODE == TOTAL:
            f, each = u, from_start  # not used: the sums hold every event
        else:
            f, _ = features(load_rows(k, k_n, at, mask, BLOCK), mask, MAP, UNIT_KEYS, 1.0)
            each = weights(r, now, C, MODE, DECAY)
        if MODE == SPREAD:
            state_right, z_right, n_right = load_state(right + place, BLOCK, False)
        each_z, each_n = sums(
            f, real, each, from_start, to_end, z, n, z_right, n_right, NORM, MODE, COLUMN_PRECISION
        )
        w, _ = divide(u, each_z, each_n, NORM)
        attended = product(w * from_start[:, None], state, OPERAND, PRECISION)
        if MODE == SPREAD:
            attended += product(w * to_end[:, None], state_right, OPERAND, PRECISION)
        if MODE != TOTAL:
            values = load_rows(v, v_n, at, mask, BLOCK)
            scores = product(w, tl.trans(f), OPERAND, PRECISION) * each
            attended += product(scores, values, OPERAND, PRECISION)
            if MODE == CAUSAL:
                if DECAY:
                    chunk = tl.exp(r * (after - before).to(tl.float32))
                    state, z, n = state * chunk, z * chunk, n * chunk
                state += product(tl.trans(f * to_end[:, None]), values, OPERAND, PRECISION)
                if (NORM == COLUMN_NORM) or (NORM == ROW_SUM):
                    z += tl.sum(column(f, NORM) * to_end[:, None], 0)
                n += tl.sum(real.to(tl.float32) * to_end, 0)
        attended = tl.where(real[:, None], attended, 0.0)
        store_rows(out, o_n, at, attended, N, WIDTH, BLOCK)


@triton.jit
def query_gradients(
    q, k, v, dout, dq, w, dcolumn, dcount, received, left, right, keep, age, rate,
    q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n, dq_b, dq_h, dq_n, N, H, segment,
    MAP: tl.constexpr, NORM: tl.constexpr, UNIT_QUERIES: tl.constexpr, UNIT_KEYS: tl.constexpr,
    SCALE: tl.constexpr, MODE: tl.constexpr, DECAY: tl.constexpr, HAS_KEEP: tl.constexpr,
    HAS_STATE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, C: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr, COLUMN_PRECISION: tl.constexpr,
):  # fmt: skip
    """dq, and for the other passes w and the gradients of the normaliser's sums."""
    s, bh = tl.program_id(1), tl.program_id(0).to(tl.int64)
    b, h = bh // H, bh % H
    q += b * q_b + h * q_h
    k += b * k_b + h * k_h
    v += b * v_b + h * v_h
    dout += b * o_b + h * o_h
    dq += b * dq_b + h * dq_h
    w += bh * N * WIDTH
    dcolumn += bh * N * WIDTH
    dcount += bh * N
    keep += b * N
    age += b * N
    r = tl.load(rate + h) if DECAY else 0.0
    SIZE: tl.constexpr = BLOCK * (BLOCK + 2)
    place = bh * SIZE if MODE == TOTAL else (bh * tl.num_programs(1) + s) * SIZE
    if HAS_STATE:  # transposed, as it is multiplied: [value, feature]
        state, z, n = load_state(left + place, BLOCK, True)
    else:
        state, z, n = no_state(BLOCK)
    z_right, n_right = z, n
    start = s * segment
    stop = tl.minimum(start + segment, N)
    origin = events_before(age, start, N, HAS_KEEP)
    moved = tl.full((), 0.0, tl.float32)
    for first in range(start, stop, C):
        at = first + tl.arange(0, C)
        real, now = ages(keep, age, at, N, HAS_KEEP)
        mask = is_real(real, WIDTH, BLOCK)
        before = events_before(age, first, N, HAS_KEEP)
        after = events_before(age, first + C, N, HAS_KEEP)
        from_start, to_end = decays(r, now, before, after, DECAY)
        u, factor = features(load_rows(q, q_n, at, mask, BLOCK), mask, MAP, UNIT_QUERIES, SCALE)
        if MODE == TOTAL:
            f, each = u, from_start
        else:
            f, _ = features(load_rows(k, k_n, at, mask, BLOCK), mask, MAP, UNIT_KEYS, 1.0)
            each = weights(r, now, C, MODE, DECAY)
        if MODE == SPREAD:
            state_right, z_right, n_right = load_state(right + place, BLOCK, True)
        each_z, each_n = sums(
            f, real, each, from_start, to_end, z, n, z_right, n_right, NORM, MODE, COLUMN_PRECISION
        )
        x, inverse = divide(u, each_z, each_n, NORM)
        store_rows(w, WIDTH, at, x, N, WIDTH, BLOCK)
        do = load_rows(dout, o_n, at, mask, BLOCK)
        dw = product(do * from_start[:, None], state, OPERAND, PRECISION)
        if MODE == SPREAD:
            from_right = product(do * to_end[:, None], state_right, OPERAND, PRECISION)
            left_less_right = dw - from_right
            dw += from_right
        if MODE != TOTAL:
            values = load_rows(v, v_n, at, mask, BLOCK)
            given = product(do, tl.trans(values), OPERAND, PRECISION) * each
            dw += product(given, f, OPERAND, PRECISION)
        du, dz, dn = divide_backward(u, each_z, each_n, x, inverse, dw, NORM)
        if (NORM == COLUMN_NORM) or (NORM == ROW_SUM):
            store_rows(dcolumn, WIDTH, at, dz, N, WIDTH, BLOCK)
        tl.store(dcount + at, dn, mask=at < N)
        if DECAY:
            if MODE == SPREAD:  # pairs inside the chunk are left to the other pass
                got = tl.sum(x * left_less_right, 1)
                got += tl.sum(dz * z[None, :], 1) * from_start + dn * n * from_start
                got -= tl.sum(dz * z_right[None, :], 1) * to_end + dn * n_right * to_end
            else:
                got = tl.sum(x * dw, 1) + tl.sum(dz * each_z, 1) + dn * each_n
            moved += tl.sum(tl.where(real, (now - origin).to(tl.float32) * got, 0.0), 0)
        du = features_backward(u, factor, du, MAP, UNIT_QUERIES, SCALE)
        du = tl.where(real[:, None], du, 0.0)
        store_rows(dq, dq_n, at, du, N, WIDTH, BLOCK)
        if MODE == CAUSAL:
            if DECAY:
                chunk = tl.exp(r * (after - before).to(tl.float32))
                state, z, n = state * chunk, z * chunk, n * chunk
            state += product(tl.trans(values * to_end[:, None]), f, OPERAND, PRECISION)
            if (NORM == COLUMN_NORM) or (NORM == ROW_SUM):
                z += tl.sum(column(f, NORM) * to_end[:, None], 0)
            n += tl.sum(real.to(tl.float32) * to_end, 0)
    if DECAY:
        tl.store(received + bh * tl.num_programs(1) + s, moved)


@triton.jit
def key_gradients(
    k, v, dout, dk, dv, w, dcolumn, dcount, given, left, right, keep, age, rate,
    k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_n, dk_b, dk_h, dk_n, dv_b, dv_h, dv_n,
    N, H, segment,
    MAP: tl.constexpr, NORM: tl.constexpr, UNIT_KEYS: tl.constexpr, MODE: tl.constexpr,
    COLUMN: tl.constexpr, DECAY: tl.constexpr, HAS_KEEP: tl.constexpr, HAS_STATE: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, C: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr, COLUMN_PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv, from the last chunk of a segment to its first."""
    s, bh = tl.program_id(1), tl.program_id(0).to(tl.int64)
    b, h = bh // H, bh % H
    k += b * k_b + h * k_h
    v += b * v_b + h * v_h
    dout += b * o_b + h * o_h
    dk += b * dk_b + h * dk_h
    dv += b * dv_b + h * dv_h
    w += bh * N * WIDTH
    dcolumn += bh * N * WIDTH
    dcount += bh * N
    keep += b * N
    age += b * N
    r = tl.load(rate + h) if DECAY else 0.0
    SIZE: tl.constexpr = BLOCK * (BLOCK + 2)
    place = bh * SIZE if MODE == TOTAL else (bh * tl.num_programs(1) + s) * SIZE
    if HAS_STATE:
        state, z, n = load_state(right + place, BLOCK, False)
    else:
        state, z, n = no_state(BLOCK)
    start = s * segment
    stop = tl.minimum(start + segment, N)
    origin = events_before(age, start, N, HAS_KEEP)
    moved = tl.full((), 0.0, tl.float32)
    chunks = tl.cdiv(stop - start, C)
    for step in range(chunks):
        first = start + (chunks - 1 - step) * C
        at = first + tl.arange(0, C)
        real, now = ages(keep, age, at, N, HAS_KEEP)
        mask = is_real(real, WIDTH, BLOCK)
        before = events_before(age, first, N, HAS_KEEP)
        after = events_before(age, first + C, N, HAS_KEEP)
        from_start, to_end = decays(r, now, before, after, DECAY)
        f, factor = features(load_rows(k, k_n, at, mask, BLOCK), mask, MAP, UNIT_KEYS, 1.0)
        values = load_rows(v, v_n, at, mask, BLOCK)
        df = product(values * to_end[:, None], tl.trans(state), OPERAND, PRECISION)
        dvalues = product(f * to_end[:, None], state, OPERAND, PRECISION)
        each_z = tl.zeros_like(f) + z[None, :] * to_end[:, None]
        each_n = n * to_end
        if MODE == SPREAD:
            left_state, z_left, n_left = load_state(left + place, BLOCK, False)
            df_left = product(
                values * from_start[:, None], tl.trans(left_state), OPERAND, PRECISION
            )
            dvalues += product(f * from_start[:, None], left_state, OPERAND, PRECISION)
            each_z_left = z_left[None, :] * from_start[:, None]
            right_less_left = df - df_left
            z_difference = each_z - each_z_left
            n_difference = each_n - n_left * from_start
            df += df_left
            each_z += each_z_left
            each_n += n_left * from_start
        if MODE != TOTAL:
            do = load_rows(dout, o_n, at, mask, BLOCK)
            x = load_rows(w, WIDTH, at, mask, BLOCK)
            each = tl.trans(weights(r, now, C, MODE, DECAY))  # [m, t]
            raw = product(values, tl.trans(do), OPERAND, PRECISION)
            scores = product(f, tl.trans(x), OPERAND, PRECISION)
            df += product(raw * each, x, OPERAND, PRECISION)
            dvalues += product(scores * each, do, OPERAND, PRECISION)
            dn = tl.load(dcount + at, mask=real, other=0.0)
            if (NORM == COLUMN_NORM) or (NORM == ROW_SUM):
                dz = load_rows(dcolumn, WIDTH, at, mask, BLOCK)
                each_z += product(each, dz, tl.float32, COLUMN_PRECISION)
            each_n += tl.sum(each * dn[None, :], 1)
        if DECAY:
            if MODE == SPREAD:
                got = tl.sum(f * right_less_left, 1) + n_difference
                pair = raw * scores + dn[None, :]
                if (NORM == COLUMN_NORM) or (NORM == ROW_SUM):
                    got += tl.sum(column(f, NORM) * z_difference, 1)
                    pair += product(column(f, NORM), tl.trans(dz), tl.float32, COLUMN_PRECISION)
                distance = tl.abs((now[:, None] - now[None, :]).to(tl.float32))
                pair = tl.where(real[:, None], pair * each * distance, 0.0)
                moved += tl.sum(tl.sum(pair, 1), 0)
            else:
                got = tl.sum(f * df, 1) + tl.sum(column(f, NORM) * each_z, 1) + each_n
            moved -= tl.sum(tl.where(real, (now - origin).to(tl.float32) * got, 0.0), 0)
        if COLUMN:
            df += column_backward(f, each_z, NORM)
        dx = features_backward(f, factor, df, MAP, UNIT_KEYS, 1.0)
        dx = tl.where(real[:, None], dx, 0.0)
        store_rows(dk, dk_n, at, dx, N, WIDTH, BLOCK)
        dvalues = tl.where(real[:, None], dvalues, 0.0)
        store_rows(dv, dv_n, at, dvalues, N, WIDTH, BLOCK)
        if MODE == CAUSAL:
            if DECAY:
                chunk = tl.exp(r * (after - before).to(tl.float32))
                state, z, n = state * chunk, z * chunk, n * chunk
            state += product(tl.trans(x * from_start[:, None]), do, OPERAND, PRECISION)
            if (NORM == COLUMN_NORM) or (NORM == ROW_SUM):
                z += tl.sum(dz * from_start[:, None], 0)
            n += tl.sum(dn * from_start, 0)
    if DECAY:
        tl.store(given + bh * tl.num_programs(1) + s, moved)
