"""Addresses of object storage, which look like paths and are none."""

from __future__ import annotations

import re
from pathlib import Path

from linrec.types import InputError

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/")  # as a Path has it, with one slash


def check_local(path: str | Path) -> None:
    """Refuse s3://bucket/log and the like, which would be taken for a folder called `s3:`."""
    if _ADDRESS.match(str(path)):
        raise InputError(
            f"{path} is not on a file system, and linrec reads and writes files; copy it to one "
            "that all machines see, or mount it there"
        )
