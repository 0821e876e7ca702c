"""What is not imported: imports are what short commands and workers wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("code", "not_imported"),
    [
        ("import linrec.cli", ("torch", "polars")),
        # torch's compiler, which takes longer to import than torch, is for those who train
        ("import linrec.recommender", ("torch._dynamo", "lightning_fabric", "pandas", "ray")),
        # the workers import torch and open the run
        ("import linrec.batch.recommending, linrec.batch.evaluating", ("torch", "polars")),
        (
            "import polars; from linrec.data.preparing.divided.scratch import encode;"
            "encode(polars.Series([3, 1, 3]))",
            ("pandas", "torch"),
        ),
    ],
)
def test_what_is_not_needed_is_not_imported(code: str, not_imported: tuple[str, ...]) -> None:
    asked = f"{code}; import sys; print([name for name in {not_imported} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
