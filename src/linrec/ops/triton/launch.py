"""The kernels in the order in which they run, with their arguments: as data, run or compiled.

`Plan` (plan.py) decides how a sequence is cut; `forward` and `backward` list launches. A launch
made from tensors on torch's meta device is never run: benchmarks/gpu_compile.py compiles it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linrec.ops.triton import attention, states
from linrec.ops.triton.plan import (
    SPREAD,
    TOTAL,
    Carried,
    Config,
    Launch,
    Plan,
    Saved,
    cdiv,
    state_size,
)

SCAN_TILE = 256
ONE_PASS_BYTES = 64  # of a row, up to which one pass gives both dk and dv


def forward(plan: Plan, out: Tensor, *, final: bool = False) -> tuple[list[Launch], Carried]:
    """final: whether the state after the last event is needed too."""
    launches, carried = _states(plan, left=plan.has_state or final, initial=plan.initial)
    return [*launches, _outputs(plan, out, carried)], carried


def backward(
    plan: Plan, dout: Tensor, gradients: tuple[Tensor, Tensor, Tensor], dfinal: Tensor | None = None
) -> tuple[list[Launch], Moved]:
    dq, dk, dv = gradients
    launches, carried = _states(plan, left=plan.has_state, initial=plan.initial)
    saved, moved = _new_saved(plan), _new_moved(plan, carried)
    launches.append(_query_gradients(plan, dout, dq, carried, saved, moved))
    more, carried_back = _states(
        plan, right=plan.has_state or dfinal is not None, initial=dfinal, of=(dout, saved)
    )
    moved = moved._replace(back=carried_back)
    launches += more
    # both at once would need more registers than there are, where blocks are wide
    wide = plan.block * plan.q.element_size() > ONE_PASS_BYTES
    parts = ((True, False), (False, True)) if wide else ((True, True),)
    for keys, values in parts:
        each = _key_gradients(plan, dout, dk, dv, carried_back, saved, moved, dfinal)
        launches.append(replace(each, constants={"KEYS": keys, "VALUES": values, **each.constants}))
    return launches, moved


class Moved(NamedTuple):
    """What the gradient of the decay is made of, and the gradient of the initial state."""

    received: Tensor  # [B * H, segments], age * received
    given: Tensor
    states: Carried
    back: Carried  # the same for gradients of states

    def rate_gradient(self, plan: Plan) -> Tensor:
        """[H]; summed in float64, because what is received and what is given nearly cancel."""
        total = (self.received.double() + self.given.double()).sum(1)
        lengths = _segment_ages(plan)  # [B, segments]
        for crossing in self._crossings():  # [B * H, segments]
            per_head = crossing.view(len(lengths), -1, plan.segments)
            total = total + (per_head * lengths[:, None]).sum(-1).flatten()
        return total.view(plan.q.shape[0], -1).sum(0).float()

    def _crossings(self) -> Iterator[Tensor]:
        """What passes the end of each segment, to the right and to the left."""
        here, back = self.states, self.back
        if here.left is not None and back.right is not None:
            assert here.left_final is not None
            yield (_after(here.left, here.left_final) * back.right).double().sum(-1)
        if here.right is not None and back.left is not None:
            assert back.left_final is not None
            yield (here.right * _after(back.left, back.left_final)).double().sum(-1)


def _after(states_before: Tensor, final: Tensor) -> Tensor:
    """The state after each segment, from those before it."""
    return torch.cat([states_before[:, 1:], final[:, None]], 1)


def _segment_ages(plan: Plan) -> Tensor:
    """Real events in each segment: [B, segments]."""
    ends = torch.arange(1, plan.segments + 1, device=plan.q.device) * plan.segment
    ends = ends.clamp(max=plan.length)
    if plan.age is None:
        ages = ends[None].expand(plan.q.shape[0], -1)
    else:
        ages = plan.age[:, ends - 1].long()
    return torch.diff(ages, dim=1, prepend=torch.zeros_like(ages[:, :1])).double()


def _states(
    plan: Plan,
    *,
    left: bool = False,
    right: bool = False,
    initial: Tensor | None = None,
    of: tuple[Tensor, Saved] | None = None,
) -> tuple[list[Launch], Carried]:
    """The states that surround segments, of keys and values or, with `of`, of gradients."""
    both, total = plan.mode == SPREAD, plan.mode == TOTAL
    left, right = left or both or total, (right and not total) or both
    if not (left or right):
        return [], Carried(None, None, None, None)
    if total:
        right = False
    ended = plan.new_states() if left else None
    begun = plan.new_states() if right else None
    launches = [_segment_states(plan, ended, begun, of)]
    finals: list[Tensor | None] = [None, None]
    for at, (each, reverse) in enumerate(((ended, False), (begun, True))):
        if each is not None:
            final = finals[at] = plan.new_state()
            launches.append(_scan(plan, each, initial, final, reverse=reverse))
    if total:  # the same for all segments
        ended = finals[0]
    return launches, Carried(ended, begun, finals[0], finals[1])


def _segment_states(
    plan: Plan, ended: Tensor | None, begun: Tensor | None, of: tuple[Tensor, Saved] | None
) -> Launch:
    some = ended if ended is not None else begun
    assert some is not None
    if of is None:
        x, y, dcolumn, dcount = plan.k, plan.v, some, some
    else:
        y, saved = of
        x = saved.w.view(*plan.q.shape)
        dcolumn, dcount = saved.dcolumn, saved.dcount
    arguments = {
        "x": x, "y": y, "dcolumn": dcolumn, "dcount": dcount,
        "ended": some if ended is None else ended, "begun": some if begun is None else begun,
        **_time(plan), **_strides("x", x), **_strides("y", y), **_sizes(plan),
    }  # fmt: skip
    constants = {
        **_rule(plan, "MAP", "NORM", "UNIT_KEYS"),
        "GRADIENTS": of is not None, "ENDED": ended is not None, "BEGUN": begun is not None,
        "COLUMN": plan.columns or (plan.initial is not None and of is None),
        **_constants(plan),
    }  # fmt: skip
    return _launch(plan, states.segment_states, arguments, constants)


def _scan(
    plan: Plan, each: Tensor, initial: Tensor | None, final: Tensor, *, reverse: bool
) -> Launch:
    size = state_size(plan.width)
    arguments = {
        "states": each, "initial": final if initial is None else initial, "final": final,
        "age": _time(plan)["age"], "rate": _time(plan)["rate"],
        **_sizes(plan), "segments": plan.segments,
    }  # fmt: skip
    constants = {
        "REVERSE": reverse, "HAS_INITIAL": initial is not None,
        "DECAY": plan.rate is not None, "HAS_KEEP": plan.keep is not None,
        "SIZE": size, "TILE": SCAN_TILE,
    }  # fmt: skip
    grid = (plan.sequences, cdiv(size, SCAN_TILE))
    return Launch(states.scan, grid, arguments, constants, Config(0, 4, 1))


def _outputs(plan: Plan, out: Tensor, carried: Carried) -> Launch:
    arguments = {
        "q": plan.q, "k": plan.k, "v": plan.v, "out": out, **_sides(carried, out), **_time(plan),
        **_strides("q", plan.q), **_strides("k", plan.k), **_strides("v", plan.v),
        **_strides("o", out), **_sizes(plan),
    }  # fmt: skip
    return _launch(plan, attention.outputs, arguments, _query_constants(plan, carried.left))


def _query_gradients(
    plan: Plan, dout: Tensor, dq: Tensor, carried: Carried, saved: Saved, moved: Moved
) -> Launch:
    arguments = {
        "q": plan.q, "k": plan.k, "v": plan.v, "dout": dout, "dq": dq, **saved._asdict(),
        "received": moved.received, **_sides(carried, dq), **_time(plan),
        **_strides("q", plan.q), **_strides("k", plan.k), **_strides("v", plan.v),
        **_strides("o", dout), **_strides("dq", dq), **_sizes(plan),
    }  # fmt: skip
    return _launch(plan, attention.query_gradients, arguments, _query_constants(plan, carried.left))


def _key_gradients(
    plan: Plan, dout: Tensor, dk: Tensor, dv: Tensor, carried: Carried, saved: Saved,
    moved: Moved, dfinal: Tensor | None,
) -> Launch:  # fmt: skip
    """In mode TOTAL the one state that gradients have is what comes from everywhere."""
    if plan.mode == TOTAL:
        carried = Carried(None, carried.left, None, None)
    arguments = {
        "k": plan.k, "v": plan.v, "dout": dout, "dk": dk, "dv": dv, **saved._asdict(),
        "given": moved.given, **_sides(carried, dk), **_time(plan),
        **_strides("k", plan.k), **_strides("v", plan.v), **_strides("o", dout),
        **_strides("dk", dk), **_strides("dv", dv), **_sizes(plan),
    }  # fmt: skip
    constants = {
        **_rule(plan, "MAP", "NORM", "UNIT_KEYS"), "MODE": plan.mode,
        "COLUMN": plan.columns or dfinal is not None, "HAS_STATE": carried.right is not None,
        **_constants(plan), "COLUMN_PRECISION": plan.precision.columns,
    }  # fmt: skip
    return _launch(plan, attention.key_gradients, arguments, constants)


def _new_saved(plan: Plan) -> Saved:
    shape = (plan.sequences, plan.length, plan.width)
    return Saved(
        plan.q.new_empty(shape, dtype=torch.float32),
        plan.q.new_empty(shape if plan.columns else (1,), dtype=torch.float32),
        plan.q.new_empty(shape[:2], dtype=torch.float32),
    )


def _new_moved(plan: Plan, carried: Carried) -> Moved:
    share = plan.q.new_empty(2, plan.sequences, plan.segments, dtype=torch.float32)
    return Moved(share[0], share[1], carried, carried)


def _query_constants(plan: Plan, left: Tensor | None) -> dict[str, Any]:
    return {
        **_rule(plan, "MAP", "NORM", "UNIT_QUERIES", "UNIT_KEYS", "SCALE"), "MODE": plan.mode,
        "HAS_STATE": left is not None, **_constants(plan),
        "COLUMN_PRECISION": plan.precision.columns,
    }  # fmt: skip


def _rule(plan: Plan, *names: str) -> dict[str, Any]:
    rule = plan.rule
    fields = {
        "MAP": int(rule.feature_map), "NORM": int(rule.normaliser),
        "UNIT_QUERIES": rule.unit_queries, "UNIT_KEYS": rule.unit_keys,
        "SCALE": 1 / math.sqrt(plan.width) if rule.scaled else 1.0,
    }  # fmt: skip
    return {name: fields[name] for name in names}


def _constants(plan: Plan) -> dict[str, Any]:
    return {
        "DECAY": plan.rate is not None, "HAS_KEEP": plan.keep is not None,
        "WIDTH": plan.width, "BLOCK": plan.block, "C": plan.config.chunk,
        "OPERAND": plan.precision.operand, "PRECISION": plan.precision.products,
    }  # fmt: skip


def _sides(carried: Carried, other: Tensor) -> dict[str, Tensor]:
    return {
        "left": other if carried.left is None else carried.left,
        "right": other if carried.right is None else carried.right,
    }


def _time(plan: Plan) -> dict[str, Tensor]:
    """An absent tensor is never read, so any other stands for it."""
    return {
        "keep": plan.q if plan.keep is None else plan.keep.view(torch.uint8),
        "age": plan.q if plan.age is None else plan.age,
        "rate": plan.q if plan.rate is None else plan.rate,
    }


def _strides(name: str, x: Tensor) -> dict[str, int]:
    return {f"{name}_{axis}": x.stride(at) for at, axis in enumerate("bhn")}


def _sizes(plan: Plan) -> dict[str, int]:
    return {"N": plan.length, "H": plan.q.shape[1], "segment": plan.segment}


def _launch(
    plan: Plan, kernel: Any, arguments: dict[str, Any], constants: dict[str, Any]
) -> Launch:
    return Launch(kernel, (plan.sequences, plan.segments), arguments, constants, plan.config)
