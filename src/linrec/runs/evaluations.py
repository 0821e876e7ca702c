"""An evaluation on disk: its figures as JSON, and the rank of every user as Parquet."""

from __future__ import annotations

import io
import re
from hashlib import sha256
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from linrec.evaluation import Evaluation
from linrec.scoring import MISS
from linrec.types import InputError

COLUMNS = ("user", "target", "history_length", "rank")
"""What every file has; the metrics of the lists come after."""
_KEY = b"linrec.evaluation"


def evaluation_name(
    split: str,
    protocol: str,
    seed: int = 0,
    *,
    hide_seen: bool = True,
    request_time: str | None = None,
    targets_where: str | None = None,
    diversity: float = 0.0,
) -> str:
    """The name of an evaluation's files; each protocol has its own, so none replaces another."""
    suffix = "-seen" if protocol == "full" and not hide_seen else ""
    suffix += "-unknown-time" if request_time == "unknown" else ""
    if targets_where is not None:
        digest = sha256(targets_where.encode()).hexdigest()[:6]  # of two conditions that read alike
        words = re.sub(r"[^a-z0-9]+", "-", targets_where.lower()).strip("-")[:40]
        suffix += f"-where-{words}-{digest}"
    suffix += f"-diversity{diversity:g}" if diversity else ""
    return f"{split}-{protocol}{suffix}" + (f"-seed{seed}" if seed else "")


def name_of(evaluation: Evaluation) -> str:
    return evaluation_name(
        evaluation.split,
        evaluation.protocol,
        evaluation.seed,
        hide_seen=evaluation.hide_seen,
        request_time=evaluation.request_time,
        targets_where=evaluation.targets_where,
        diversity=evaluation.diversity,
    )


def pack_ranks(ranks: pl.DataFrame, evaluation: Evaluation) -> bytes:
    """Parquet that any reader can open, with the evaluation in its metadata."""
    table = ranks.to_arrow()
    metadata = {**(table.schema.metadata or {}), _KEY: evaluation.to_json().encode()}
    content = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), content, compression="zstd")
    return content.getvalue()


def read_ranks(path: Path, content: bytes) -> tuple[Evaluation, pl.DataFrame]:
    """What `pack_ranks` made; `path` names the file in error messages."""
    try:
        table = pq.read_table(io.BytesIO(content))
    except (
        OSError,
        ValueError,
        NotImplementedError,
        LookupError,
    ) as error:  # pyarrow's own errors are subclasses of these
        raise InputError(f"cannot read {path}: {error}; run `linrec evaluate` again") from error
    header = (table.schema.metadata or {}).get(_KEY)
    if header is None or tuple(table.column_names[: len(COLUMNS)]) != COLUMNS:
        raise InputError(f"{path} holds no ranks of users; make them with `linrec evaluate`")
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    evaluation = Evaluation.from_json(header)
    # early versions gave a hidden target the rank n_items, which no shown target can have
    hidden = pl.col("rank") >= evaluation.n_items
    return evaluation, frame.with_columns(rank=pl.when(hidden).then(MISS).otherwise("rank"))
