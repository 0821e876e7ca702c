"""Per-user ranks on disk: Parquet that carries the evaluation it belongs to."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from linrec.evaluation.report import Evaluation
from linrec.files.atomic import write_bytes
from linrec.types import InputError

COLUMNS = ("user", "target", "history_length", "rank")
_KEY = b"linrec.evaluation"


def save_ranks(path: Path, frame: pl.DataFrame, evaluation: Evaluation) -> None:
    """Write the ranks in one step; any Parquet reader can open them."""
    table = frame.to_arrow()
    metadata = {**(table.schema.metadata or {}), _KEY: evaluation.to_json().encode()}
    content = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), content, compression="zstd")
    write_bytes(Path(path), content.getvalue())


def load_ranks(path: Path) -> tuple[Evaluation, pl.DataFrame]:
    """What `save_ranks` wrote."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there are no ranks at {path}; make them with `linrec evaluate`")
    try:
        table = pq.read_table(io.BytesIO(path.read_bytes()))
    except (OSError, ValueError) as error:  # pyarrow's own errors are one or the other
        raise InputError(f"cannot read {path}: {error}; run `linrec evaluate` again") from error
    header = (table.schema.metadata or {}).get(_KEY)
    if header is None or tuple(table.column_names) != COLUMNS:
        raise InputError(f"{path} holds no ranks of users; make them with `linrec evaluate`")
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return Evaluation.from_json(header), frame
