"""The report of compiled kernels goes on where it was stopped."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import write_json

pytest.importorskip("triton", reason="triton is not installed (it has wheels for Linux)")

from benchmarks import gpu_compile
from benchmarks.gpu_compile import Case

CASE = Case("linrec, causal", "forward", 16, "bfloat16", "sm_80")


def rows(case: Case) -> list[dict[str, Any]]:
    figures = {"kernel": "outputs", "registers": 8, "spilled": 0, "shared": 0}
    configs = sorted(gpu_compile.configs_of(case))
    return [
        {**vars(case), **dict(zip(gpu_compile.CONFIG, c, strict=True)), **figures} for c in configs
    ]


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
    everything = Namespace(
        widths=gpu_compile.WIDTHS,
        dtypes=gpu_compile.DTYPES,
        targets=gpu_compile.TARGETS,
        forms=gpu_compile.FORMS,
    )
    assert [c for c in gpu_compile.cases(everything) if not gpu_compile.is_in(rows, c)] == []
    assert [row for row in rows if row["width"] <= 64 and row["spilled"]] == []
