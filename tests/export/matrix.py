"""Every backbone with every attention, exported and compared: python -m tests.export.matrix

Takes some minutes, which is why the tests have only one pair of each kind.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from linrec.export.folder import export_onnx
from tests.contracts.cases import PAIRS
from tests.export.cases import run_of


def main(requested: list[str]) -> None:
    for backbone, attention in PAIRS:
        if requested and f"{backbone}-{attention}" not in requested:
            continue
        with tempfile.TemporaryDirectory() as place:
            run = run_of(Path(place) / "run", backbone, attention, layers=1)
            exported = export_onnx(run, Path(place) / "out", top_k=3)
        message = ", ".join(f"{name} {worst:.1e}" for name, worst in exported.differences.items())
        print(f"{backbone} {attention}: {message}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
