"""`linrec export`: a run as files that need neither Python nor torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from linrec.cli.seen import SeenFlag, seen_of


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run of `linrec train`.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Also give the best K items, ranked in the graph."),
    ] = None,
    seen: SeenFlag = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an older export.")
    ] = False,
) -> None:
    """Write a model for onnxruntime: histories to scores, and one event and a state to the next.

    All graphs are run in onnxruntime and compared with torch before anything is written.

    Needs pip install 'linrec\\[onnx]'.

    Examples:

    \b
      linrec export runs/shop --out shop-onnx
      linrec export runs/shop --out shop-onnx --top-k 20 --overwrite
    """
    from rich.console import Console
    from rich.table import Table

    from linrec.export.folder import export_onnx

    console, shown = Console(), seen_of(seen)
    with console.status("tracing the graphs and comparing them with torch"):
        exported = export_onnx(run, out, top_k=top_k, seen=shown, overwrite=overwrite)
    table = Table("graph", "MB", "largest difference from torch")
    for name, difference in exported.differences.items():
        size = sum(file.stat().st_size for file in out.glob(f"{name}*"))
        table.add_row(name, f"{size / 1e6:.1f}", f"{difference:.1e} of the largest score")
    console.print(table)
    if exported.why_no_step is not None:
        line = f"no step.onnx: {exported.why_no_step}"
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(f"wrote {out}", soft_wrap=True, highlight=False, markup=False)
