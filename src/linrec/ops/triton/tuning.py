"""Which configurations a pass may run with, and which one it does run with.

Every candidate is compiled ahead of time by benchmarks/gpu_compile.py, which reports its registers
and spills. On a device the first call of a kind times the candidates; the interpreter takes the
first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import triton.language as tl

from linrec.ops.triton.plan import Config, Precision

Pass = Literal["forward", "backward"]
REPEATS = 5


class Kind(NamedTuple):
    """Calls of one kind share their configuration."""

    what: Pass
    block: int
    dtype: torch.dtype
    mode: int
    size: int  # how many positions in all heads, as a power of two


def candidates(what: Pass, block: int, dtype: torch.dtype, *, hopper: bool) -> tuple[Config, ...]:
    """The first is used where nothing can be timed.

    A warp multiplies 16 rows of a state, so a block of 64 has work for four. Chunks are short
    because every warp holds whole chunks in registers, in float32 and split in two. More warps
    where a kernel would spill otherwise. hopper: compute capability 9.0 or newer, whose compiler
    spills with four warps what Ampere's spills with eight.
    """
    warps = block // 16
    if what == "forward" and dtype == torch.bfloat16:
        return (Config(32, warps, 2), Config(16, warps, 1))
    if what == "backward" and dtype == torch.float32:
        warps = 4 * warps
    elif what == "backward" and dtype == torch.float16:
        warps = 2 * warps
    elif dtype == torch.float32 and block == 64 and hopper:
        warps = 8
    return (Config(16, warps, 1),)


_chosen: dict[tuple[str, Kind], Config] = {}


def choose(kind: Kind, device: torch.device, run: Callable[[Config], object]) -> Config:
    """The fastest candidate for this kind of call. Passes write the same again, so they may run."""
    options = candidates(kind.what, kind.block, kind.dtype, hopper=is_hopper(device))
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return options[0]
    key = (torch.cuda.get_device_name(device), kind)
    if key not in _chosen:
        _chosen[key] = min(options, key=lambda config: _milliseconds(run, config))
    return _chosen[key]


def is_hopper(device: torch.device) -> bool:
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


def _milliseconds(run: Callable[[Config], object], config: Config) -> float:
    run(config)  # compiles
    begin, end = (
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2)
    )
    begin.record()
    for _ in range(REPEATS):
        run(config)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def precision_of(what: Pass, dtype: torch.dtype, *, amd: bool) -> Precision:
    """How many bits of its operands a product needs.

    Forwards as many as the inputs have. float16 has too small a range for sums over long histories,
    so it is multiplied as TensorFloat-32, which has as many bits. Backwards more: a key's gradient
    is a difference of two numbers, each as large as one over the key where few events share a
    column, so operands are split into two bfloat16 numbers of eight bits each.
    """
    if dtype == torch.float32:
        products = "ieee" if amd else "tf32x3"
        return Precision(tl.float32, products, products)
    if what == "backward":
        return Precision(tl.float32, "bf16x3", "bf16x3")
    narrow = "ieee" if amd else "tf32"
    operand = tl.bfloat16 if dtype == torch.bfloat16 else tl.float32
    return Precision(operand, narrow, narrow)
