"""Whole passes on tensors: make a plan, run its launches, return what autograd needs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.ops.rule import Rule
from linrec.ops.triton import launch, tuning
from linrec.ops.triton.plan import Config, Launch, Plan, block_of

# programs per processor: enough to hide the latency of loads
BUSY = 4
# what the interpreter takes for a device: few, so that small tests have several segments
INTERPRETED_PROGRAMS = 8


class Inputs(NamedTuple):
    """What a pass reads; q, k, v: [B, H, N, D]."""

    q: Tensor
    k: Tensor
    v: Tensor
    keep: Tensor | None
    rate: Tensor | None
    initial: Tensor | None = None  # a flat state


def plan_of(what: tuning.Pass, rule: Rule, inputs: Inputs, causal: bool) -> Plan:
    q, k, v = (_rows(x) for x in inputs[:3])
    keep = None if inputs.keep is None else inputs.keep.detach().contiguous()
    age = None if keep is None else keep.cumsum(1, dtype=torch.int32)
    rate = None if inputs.rate is None else inputs.rate.detach().float().contiguous()
    return Plan(
        rule, q, k, v, keep, age, rate, causal,
        tuning.candidates(
            what, block_of(q.shape[3]), q.dtype, hopper=tuning.is_hopper(q.device)
        )[0],
        tuning.precision_of(what, q.dtype, amd=torch.version.hip is not None),
        programs_of(q.device), inputs.initial,
    )  # fmt: skip


def attend(rule: Rule, inputs: Inputs, causal: bool, out: Tensor) -> None:
    """Fill `out`, zeros where padded."""
    run("forward", rule, inputs, causal, lambda plan: launch.forward(plan, out))


def attend_backward(
    rule: Rule, inputs: Inputs, causal: bool, dout: Tensor, gradients: tuple[Tensor, Tensor, Tensor]
) -> Tensor | None:
    """Fill the gradients of q, k and v; returns that of the rate [H]."""
    dout = _rows(dout)
    plan, moved = run(
        "backward", rule, inputs, causal, lambda plan: launch.backward(plan, dout, gradients)
    )
    return None if plan.rate is None else moved.rate_gradient(plan)


def resume(rule: Rule, inputs: Inputs, out: Tensor) -> Tensor:
    """Fill `out` by the causal form that continues from a state; returns the flat final state."""
    _, carried = run(
        "forward", rule, inputs, True, lambda plan: launch.forward(plan, out, final=True)
    )
    final: Tensor = carried.left_final
    return final


def resume_backward(
    rule: Rule, inputs: Inputs, dout: Tensor, dfinal: Tensor,
    gradients: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor | None, Tensor]:  # fmt: skip
    """Fill the gradients of q, k and v; returns those of the rate and of the flat state."""
    dout = _rows(dout)
    plan, moved = run(
        "backward", rule, inputs, True, lambda plan: launch.backward(plan, dout, gradients, dfinal)
    )
    rate = None if plan.rate is None else moved.rate_gradient(plan)
    return rate, moved.back.right_final


def run(
    what: tuning.Pass, rule: Rule, inputs: Inputs, causal: bool, listed: Any
) -> tuple[Plan, Any]:
    """Run the launches that `listed(plan)` gives, in the best configuration."""
    plan = plan_of(what, rule, inputs, causal)

    def with_config(config: Config) -> tuple[Plan, Any]:
        chosen = replace(plan, config=config)
        launches: list[Launch]
        launches, rest = listed(chosen)
        with torch.cuda.device(plan.q.device) if plan.q.is_cuda else nullcontext():
            for each in launches:
                each.run()
        return chosen, rest

    size = (plan.sequences * plan.length).bit_length()
    kind = tuning.Kind(what, plan.block, plan.q.dtype, plan.mode, size)
    return with_config(tuning.choose(kind, plan.q.device, with_config))


def programs_of(device: torch.device) -> int:
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return BUSY * torch.cuda.get_device_properties(device).multi_processor_count


def packed(memory: Tensor, column: Tensor, count: Tensor) -> Tensor:
    """A state as one flat row per head of each sequence, padded to whole blocks.

    [B, H, D, D], [B, H, D], [B, H]  ->  [B * H, size]
    """
    width = column.shape[-1]
    missing = block_of(width) - width
    rows = torch.cat(
        [F.pad(memory, (0, missing, 0, missing)).flatten(2), F.pad(column, (0, missing))], -1
    )
    counts = F.pad(count[..., None], (0, width + missing - 1))
    return torch.cat([rows, counts], -1).flatten(0, 1)


def unpacked(flat: Tensor, batch: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """memory, column and count of `packed`."""
    block = block_of(width)
    flat = flat.view(batch, -1, block + 2, block)
    parts = flat[:, :, :width, :width], flat[:, :, block, :width], flat[:, :, block + 1, 0]
    # copies of one head, too: an operator of torch may not return two views of one tensor
    memory, column, count = (part.clone(memory_format=torch.contiguous_format) for part in parts)
    return memory, column, count


def _rows(x: Tensor) -> Tensor:
    """As it is if its last dimension is contiguous, which is all that the kernels ask for."""
    x = x.detach()
    return x if x.stride(-1) == 1 else x.contiguous()
