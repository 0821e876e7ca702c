"""Attention on a GPU: our Triton kernels, torch's flash attention, flash-linear-attention.

    .venv/bin/python -m benchmarks.gpu
    .venv/bin/python -m benchmarks.gpu --widths 64 --lengths 1000 4000 --dtype float32

Causal, forward and backward, 8 heads, as many events at each length. flash-linear-attention
(`pip install flash-linear-attention`) takes part where it is installed. Writes
results/benchmarks/gpu.json with the device; "kernel" says whether ours ran as a kernel.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.environment import environment
from benchmarks.results import OUT_FOLDER, write_json
from linrec import ops
from linrec.ops import fused

OUT = OUT_FOLDER / "gpu.json"
HEADS = 8
WARM_UP, REPEATS = 5, 20


def main() -> None:
    args = _arguments()
    if not torch.cuda.is_available():
        print("benchmarks.gpu measures on a GPU, and torch finds none here", file=sys.stderr)
        raise SystemExit(2)
    rows = [
        row(length, width, args.events, getattr(torch, args.dtype))
        for width in args.widths
        for length in args.lengths
    ]
    outcome = {
        "command": " ".join(["python -m benchmarks.gpu", *sys.argv[1:]]),
        **environment(),
        "device": torch.cuda.get_device_name(),
        "kernels": ops.kernels("linrec-decay", device="cuda"),
        "dtype": args.dtype,
        "rows": rows,
    }
    write_json(args.out, outcome)
    print(f"wrote {args.out}")


def row(
    length: int, width: int, events: int, dtype: torch.dtype, device: str = "cuda"
) -> dict[str, Any]:
    found = {"length": length, "width": width, "kernel": has_kernel(width, dtype, device)}
    for name, attended in forms(length, width, events, dtype, device).items():
        found[f"{name}_ms"] = round(milliseconds(attended), 4)
    print(found, flush=True)
    return found


def has_kernel(width: int, dtype: torch.dtype, device: str) -> bool:
    """Whether ours is a kernel there; wide heads in float16 and float32 have none for gradients."""
    x = torch.empty(1, 1, 1, width, device=device, dtype=dtype, requires_grad=True)
    return fused.covers(ops.find("linrec-decay").rule, x, x, x)


def forms(
    length: int, width: int, events: int, dtype: torch.dtype, device: str = "cuda"
) -> dict[str, Callable[[], None]]:
    """Each computes the output and all gradients."""
    shape = (max(1, events // length), HEADS, length, width)
    q, k, v = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    decay = torch.full((HEADS,), -0.1, device=device, requires_grad=True)
    dout = torch.randn(shape, device=device, dtype=dtype)

    def trained(out: Tensor, *others: Tensor) -> None:
        torch.autograd.grad(out, (q, k, v, *others), dout.expand_as(out))

    def ours() -> None:
        trained(ops.attend("linrec-decay", q, k, v, causal=True, decay=decay), decay)

    def chunked() -> None:
        with ops.without_kernels():
            ours()

    def flash() -> None:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
            trained(F.scaled_dot_product_attention(q, k, v, is_causal=True))

    found = {"linrec": ours, "chunked": chunked, "flash": flash}
    if find_spec("fla") is not None:
        from fla.ops.linear_attn import chunk_linear_attn

        def fla() -> None:  # its layout is [B, N, H, D]
            out = chunk_linear_attn(*(x.transpose(1, 2) for x in (q, k, v)), normalize=False)
            trained((out[0] if isinstance(out, tuple) else out).transpose(1, 2))

        found["fla"] = fla
    return found


def milliseconds(job: Callable[[], None]) -> float:
    """The median of several runs, after the ones that compile and tune."""
    for _ in range(WARM_UP):
        job()
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        job()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[200, 1000, 4000, 16000])
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--events", type=int, default=64_000, help="of a batch, at any length")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
