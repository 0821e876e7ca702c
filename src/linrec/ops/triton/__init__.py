"""The same operators as kernels for GPUs, in Triton.

Triton comes with the CUDA and ROCm builds of torch; linrec does not require it. Nothing here
imports it before it is needed. With TRITON_INTERPRET=1 in the environment Triton runs in Python and
these kernels serve tensors on the CPU, which is how they are tested without a GPU.

An attention is cut into chunks, and chunks are grouped into segments. One program walks through a
segment with the state in registers. Between segments a state is added up, scanned and handed on,
but only as many segments are made as the device needs to be busy.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from linrec.ops.rule import Rule
from linrec.ops.tracing import constant

OLDEST = (3, 7)  # the first version of Triton that these kernels were tested with
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_WIDTH = 128
# gradients of wider heads would not fit into registers in every form (docs/log.md)
MAX_WIDTH_OF_GRADIENTS = {torch.bfloat16: 128, torch.float16: 32, torch.float32: 32}

WIDE = 64  # heads up to this width fit into the shared memory of every device
# bytes of shared memory that the largest kernel takes with wider heads; a device that has less
# refuses to launch it. From the report of benchmarks/gpu_compile.py, by who made the device.
MEMORY_OF_WIDE_HEADS = {
    "nvidia": {torch.bfloat16: 152_868, torch.float16: 155_648, torch.float32: 197_632},
    "amd": {torch.bfloat16: 90_112, torch.float16: 65_536, torch.float32: 65_536},
}


def is_interpreted() -> bool:
    """Whether Triton runs in Python on CPU tensors; it decides when it is imported."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


# torch.compile takes the answer as it is; it would look through a cache, and into Triton
@constant
def why_not(device_type: str) -> str | None:
    """Why the kernels cannot run on such devices, or None if they can."""
    return _why_not(device_type)


@cache
def _why_not(device_type: str) -> str | None:
    if device_type != ("cpu" if is_interpreted() else "cuda"):
        return f"there are none for {device_type}"
    if find_spec("triton") is None:
        return "triton is not installed"
    if _version() < OLDEST:
        return f"{name()} is older than {'.'.join(map(str, OLDEST))}"
    if device_type == "cpu":
        return None
    if not torch.cuda.is_available():
        return "torch finds no GPU"
    if torch.version.hip is None and torch.cuda.get_device_capability() < (8, 0):
        return "the GPU is older than Ampere (compute capability 8.0)"
    return None


def name() -> str:
    """What `ops.kernels` says where these kernels run."""
    import triton

    return f"triton {triton.__version__}" + (", interpreted" if is_interpreted() else "")


def _version() -> tuple[int, ...]:
    import triton

    return tuple(int(part) for part in triton.__version__.split(".")[:2])


def covers(rule: Rule | None, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernels can compute this; widths between powers of two cost as the next one."""
    return (
        rule is not None
        and why_not(q.device.type) is None
        and q.dtype in DTYPES
        and q.dtype == k.dtype == v.dtype
        and q.shape == v.shape
        and 0 < q.shape[3] <= _max_width(q, k, v)
    )


def _max_width(q: Tensor, k: Tensor, v: Tensor) -> int:
    trained = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    widest = MAX_WIDTH_OF_GRADIENTS[q.dtype] if trained else MAX_WIDTH
    maker = "nvidia" if torch.version.hip is None else "amd"
    if q.shape[3] <= WIDE or MEMORY_OF_WIDE_HEADS[maker][q.dtype] <= shared_memory(q.device.index):
        return widest
    return min(widest, WIDE)


# torch.compile takes the answer as it is, as with why_not
@constant
def shared_memory(device: int | None) -> int:
    """How many bytes of it a program may have there: what Triton compares at a launch."""
    if is_interpreted():
        return sys.maxsize
    from triton.compiler import max_shared_mem

    return int(max_shared_mem(device or 0))
