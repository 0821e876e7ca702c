"""The report of compiled kernels goes on where it was stopped."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.results import write_json

pytest.importorskip("triton", reason="triton is not installed (it has wheels for Linux)")

from benchmarks import gpu_compile
from benchmarks.gpu_compile import Case
from linrec import ops
from linrec.ops import triton
from linrec.ops.triton import plan

CASE = Case("linrec, causal", "forward", 16, "bfloat16", "sm_80")


def rows(case: Case) -> list[dict[str, Any]]:
    figures = {"kernel": "outputs", "registers": 8, "spilled": 0, "shared": 0}
    configs = sorted(gpu_compile.configs_of(case))
    return [
        {**vars(case), **dict(zip(gpu_compile.CONFIG, c, strict=True)), **figures} for c in configs
    ]


def everything() -> Namespace:
    return Namespace(
        widths=gpu_compile.WIDTHS,
        dtypes=gpu_compile.DTYPES,
        targets=gpu_compile.TARGETS,
        forms=gpu_compile.FORMS,
    )


def test_a_case_is_there_if_all_its_configurations_are() -> None:
    there = rows(CASE)
    assert gpu_compile.is_in(there, CASE)
    assert not gpu_compile.is_in(there[1:], CASE)
    assert not gpu_compile.is_in([], CASE)


def test_new_rows_replace_those_of_the_same_case() -> None:
    other = Case("linrec, causal", "forward", 16, "bfloat16", "gfx942")
    merged = gpu_compile.merged(rows(other) + rows(CASE), rows(CASE))
    assert merged == rows(CASE) + rows(other)


def test_rows_of_kernels_that_changed_are_dropped(tmp_path: Path) -> None:
    out = tmp_path / "some.json"
    assert gpu_compile.stored(out) == []
    write_json(out, gpu_compile.outcome(rows(CASE)))
    assert gpu_compile.stored(out) == rows(CASE)
    write_json(out, gpu_compile.outcome(rows(CASE)) | {"kernels": "others"})
    assert gpu_compile.stored(out) == []


def test_what_is_missing_is_said() -> None:
    other = Case("linrec, causal", "forward", 32, "bfloat16", "gfx942")
    table = gpu_compile.table(gpu_compile.outcome(rows(CASE) + rows(other)))
    assert table.count("not compiled yet") == 2


def test_the_committed_report_is_whole_and_nothing_spills_up_to_width_64() -> None:
    rows = gpu_compile.stored(gpu_compile.OUT)
    assert rows, "the kernels have changed: run python -m benchmarks.gpu_compile"
    assert [c for c in gpu_compile.cases(everything()) if not gpu_compile.is_in(rows, c)] == []
    assert [row for row in rows if row["width"] <= 64 and row["spilled"]] == []


def test_the_committed_report_has_every_kernel_that_would_run() -> None:
    """In its order: another division into kernels needs another report."""
    rows = gpu_compile.stored(gpu_compile.OUT)
    for case in gpu_compile.cases(everything()):
        listed = [
            each.kernel.__name__
            for config in gpu_compile.configs_of(case)
            for each in gpu_compile.launches(case, config)
        ]
        assert [r["kernel"] for r in rows if gpu_compile.case_of(r) == case] == listed, case


# shared memory that a program may have, and whose kernels run there
DEVICES = {
    "A100": ("sm_80", gpu_compile.TARGETS["sm_80"][3]),
    "RTX 4090": ("sm_80", 101_376),
    "H100": ("sm_90", gpu_compile.TARGETS["sm_90"][3]),
    "MI300": ("gfx942", gpu_compile.TARGETS["gfx942"][3]),
}


@pytest.mark.parametrize("device", list(DEVICES))
def test_no_device_is_given_a_kernel_that_it_has_no_room_for(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton would refuse to launch it; the torch form runs instead."""
    target, memory = DEVICES[device]
    monkeypatch.setattr(triton, "why_not", lambda _: None)
    monkeypatch.setattr(triton, "shared_memory", lambda _: memory)
    monkeypatch.setattr(torch.version, "hip", "6.4" if target.startswith("gfx") else None)
    rule, served = ops.find("linrec-decay").rule, set()
    for row in gpu_compile.stored(gpu_compile.OUT):
        if row["target"] != target:
            continue
        x = torch.empty(1, 1, 2, row["width"], dtype=gpu_compile.DTYPES[row["dtype"]])
        x.requires_grad_(row["what"] == "backward")
        if triton.covers(rule, x, x, x):
            assert row["shared"] <= memory, row
            served.add((row["width"], row["dtype"], row["what"]))
    wide = {kind[1:] for kind in served if kind[0] == 128}
    assert {kind[0] for kind in served} >= {16, 32, 64}
    assert wide == WIDE_HEADS[device]


BFLOAT16 = {("bfloat16", "forward"), ("bfloat16", "backward")}
WIDE_HEADS = {
    "A100": BFLOAT16 | {("float16", "forward")},
    "RTX 4090": set(),
    "H100": BFLOAT16 | {("float16", "forward"), ("float32", "forward")},
    "MI300": {("float16", "forward"), ("float32", "forward")},
}


def test_the_room_that_wide_heads_need_is_that_of_the_report() -> None:
    rows = gpu_compile.stored(gpu_compile.OUT)
    for maker, targets in {"nvidia": ("sm_80", "sm_90"), "amd": ("gfx942",)}.items():
        for name, dtype in gpu_compile.DTYPES.items():
            needed = max(
                row["shared"] for row in rows
                if row["width"] == 128 and row["dtype"] == name and row["target"] in targets
            )  # fmt: skip
            assert triton.MEMORY_OF_WIDE_HEADS[maker][dtype] == needed
    smallest = min(memory for _, memory in DEVICES.values())
    assert all(row["shared"] <= smallest for row in rows if row["width"] <= triton.WIDE)
    assert plan.block_of(triton.WIDE) == triton.WIDE
