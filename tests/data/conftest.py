from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str, "str | bytes"], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a small file; a name that ends in .gz is gzipped."""

    def write(name: str, content: str | bytes) -> Path:
        raw = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return write
