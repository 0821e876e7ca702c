"""The causal form that continues from a state, as a torch operator: on GPUs, in Triton.

On the CPU `resume` takes the torch form, which is the slow twin of this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from linrec.ops import fused, triton
from linrec.ops.mechanism import State
from linrec.ops.rule import Rule
from linrec.ops.rule_based import RuleBased


def covers(rule: Rule | None, q: Tensor, k: Tensor, v: Tensor, state: State) -> bool:
    """Whether the kernels run for these tensors."""
    return (
        fused.are_enabled()
        and triton.covers(rule, q, k, v)
        and state.memory.dtype == torch.float32
        and state.memory.shape == (*q.shape[:2], q.shape[3], q.shape[3])
    )


def resume(
    rule: Rule,
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    state: State,
) -> tuple[Tensor, State]:
    """parts: q, k and v. What the `resume` of the rule's mechanism gives."""
    rate = None if decay is None else decay.float()
    numbers = [int(field) for field in rule]
    out, *after = _resume(
        list(parts), keep, rate, [state.memory, state.column, state.count], numbers
    )
    return out, State(*after)


@torch.library.custom_op("linrec::resume", mutates_args=())
def _resume(
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    state: Sequence[Tensor],
    rule: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from linrec.ops.triton import passes

    q, k, v = parts
    out = fused.like_projected(q)
    inputs = passes.Inputs(q, k, v, keep, decay, passes.packed(*state))
    final = passes.resume(Rule.from_numbers(rule), inputs, out)
    return out, *passes.unpacked(final, q.shape[0], q.shape[3])


@torch.library.custom_op("linrec::resume_backward", mutates_args=())
def _resume_backward(
    douts: Sequence[Tensor],
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    state: Sequence[Tensor],
    rule: Sequence[int],
) -> list[Tensor]:
    """The gradients of the parts, of the state and, last, of the decay."""
    from linrec.ops.triton import passes

    q, k, v = parts
    dq, dk, dv = (fused.like_projected(part) for part in parts)
    inputs = passes.Inputs(q, k, v, keep, decay, passes.packed(*state))
    ddecay, dstate = passes.resume_backward(
        Rule.from_numbers(rule), inputs, douts[0], passes.packed(*douts[1:]), (dq, dk, dv)
    )
    before = passes.unpacked(dstate, q.shape[0], q.shape[3])
    return [dq, dk, dv, *before, q.new_empty(0) if ddecay is None else ddecay]


@_resume.register_fake
def _(
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    state: Sequence[Tensor],
    rule: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del keep, decay, rule
    memory, column, count = (x.new_empty(x.shape) for x in state)
    return fused.like_projected(parts[0]), memory, column, count


@_resume_backward.register_fake
def _(
    douts: Sequence[Tensor],
    parts: Sequence[Tensor],
    keep: Tensor | None,
    decay: Tensor | None,
    state: Sequence[Tensor],
    rule: Sequence[int],
) -> list[Tensor]:
    del douts, keep, rule
    ddecay = parts[0].new_empty(0) if decay is None else torch.empty_like(decay)
    before = [x.new_empty(x.shape) for x in state]
    return [*(fused.like_projected(part) for part in parts), *before, ddecay]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    del output
    parts, keep, decay, state, ctx.rule = inputs
    ctx.save_for_backward(*parts, *state, keep, decay)


def _backward(ctx: Any, *douts: Tensor) -> tuple[Any, ...]:
    *tensors, keep, decay = ctx.saved_tensors
    parts, state = tensors[:3], tensors[3:]
    if torch.is_grad_enabled():  # a gradient of this gradient will be needed
        *gradients, ddecay = _differentiable(ctx, list(douts))
    else:
        *gradients, ddecay = _resume_backward(douts, parts, keep, decay, state, ctx.rule)
    return gradients[:3], None, None if decay is None else ddecay, gradients[3:], None


def _differentiable(ctx: Any, douts: list[Tensor]) -> list[Tensor | None]:
    """The same gradients by the torch form, which can be differentiated again."""
    *tensors, keep, decay = ctx.saved_tensors
    mechanism = RuleBased(Rule.from_numbers(ctx.rule))
    out, after = mechanism.resume(*tensors[:3], keep, decay, State(*tensors[3:]))
    outs = [out, after.memory, after.column, after.count]
    return fused.gradients_again(outs, [*tensors, decay], douts)


_resume.register_autograd(_backward, setup_context=_save)
