"""The Triton kernels: values and gradients in Triton's interpreter, compilation for real GPUs.

The interpreter is chosen by an environment variable before Triton is imported, and then serves all
attention on the CPU. So its tests, in tests/ops/interpreted, run in a process of their own.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from linrec import ops
from linrec.ops import triton

REPO = Path(__file__).resolve().parents[2]
HERE = REPO / "tests" / "ops" / "interpreted"

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="triton is not installed (it has wheels for Linux)"
)


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPO,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="the same tests run on the GPU itself")
def test_interpreted_kernels_equal_the_oracle() -> None:
    done = run("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", str(HERE), TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@needs_triton
@pytest.mark.skipif(platform.machine() != "x86_64", reason="ptxas is only there for x86_64")
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
def test_kernels_compile_for_a_gpu_that_is_not_here(target: str, tmp_path: Path) -> None:
    code = f"""
from benchmarks.gpu_compile import Case, rows_of
for what in ("forward", "backward"):
    for row in rows_of(Case("linrec-decay, causal", what, 32, "bfloat16", {target!r})):
        assert row["registers"] > 0, row
        assert row["spilled"] == 0, row
"""
    done = run("-c", code, TRITON_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]


@needs_triton
@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="ptxas is only there for x86_64")
def test_what_the_report_leaves_out_compiles_too(tmp_path: Path) -> None:
    """The other mechanisms, and a state in and out. The interpreter runs what Triton's compiler may
    refuse."""
    code = """
from benchmarks.gpu_compile import Case, compiled, configs_of, launches
from linrec import ops

others = [name for name in ops.MECHANISMS if ops.find(name).rule]
assert {"linear-transformer", "linrec-without-norm"} < set(others), others
for name, resumed in [(name, False) for name in others] + [("linrec-decay", True)]:
    for what in ("forward", "backward"):
        if name in ("linrec", "linrec-decay") and not resumed:
            continue  # they are in the report
        case = Case("linrec-decay, causal", what, 16, "bfloat16", "sm_80")
        rule = ops.find(name).rule
        for each in launches(case, configs_of(case)[-1], rule, resumed=resumed):
            found = compiled(each, case.target)
            assert found["registers"] > 0, (name, found)
            assert found["spilled"] == 0, (name, found)
"""
    done = run("-c", code, TRITON_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]


def test_without_a_gpu_they_are_off() -> None:
    assert ops.kernels(device="cpu") == ops.kernels()
    assert triton.why_not("mps") == "there are none for mps"
    if not torch.cuda.is_available():
        assert ops.kernels(device="cuda").startswith("off: ")


def test_nothing_imports_triton_before_it_is_needed() -> None:
    done = run("-c", "import sys, linrec.ops; print('linrec.ops.triton.launch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr
