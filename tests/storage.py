"""An S3 server on this machine, for tests of object storage; skipped without moto."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from linrec.files.remote import ENDPOINTS


class Bucket:
    """A bucket of its own, looked at past the code under test."""

    def __init__(self, endpoint: str) -> None:
        from pyarrow.fs import S3FileSystem

        self.endpoint, self.name = endpoint, f"shop-{uuid4().hex[:8]}"
        self.system = S3FileSystem(
            access_key="key", secret_key="secret", region="us-east-1",
            endpoint_override=endpoint, allow_bucket_creation=True,
        )  # fmt: skip
        self.system.create_dir(self.name)

    def address(self, name: str) -> str:
        return f"s3://{self.name}/{name}"

    def put(self, name: str, content: bytes | Path) -> None:
        data = content.read_bytes() if isinstance(content, Path) else content
        with self.system.open_output_stream(f"{self.name}/{name}") as stream:
            stream.write(data)

    def put_folder(self, name: str, folder: Path) -> None:
        for file in folder.rglob("*"):
            if file.is_file():
                self.put(f"{name}/{file.relative_to(folder)}", file)

    def content(self, name: str = "") -> dict[str, bytes]:
        from pyarrow.fs import FileSelector, FileType

        root = f"{self.name}/{name}".rstrip("/")
        found = self.system.get_file_info(FileSelector(root, recursive=True, allow_not_found=True))
        return {
            each.path[len(root) + 1 :]: self.system.open_input_file(each.path).read()
            for each in found
            if each.type == FileType.File
        }

    def delete(self, name: str) -> None:
        self.system.delete_file(f"{self.name}/{name}")


@contextmanager
def serving() -> Iterator[str]:
    """The endpoint of a server in this process."""
    server: Any = pytest.importorskip(
        "moto.server", reason="needs moto and flask, which are in linrec[dev]"
    )
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        running.stop()


def point_to(endpoint: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment as somebody with credentials for this server has it."""
    monkeypatch.delenv(ENDPOINTS[0], raising=False)
    for name, value in {
        ENDPOINTS[1]: endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "LINREC_CACHE": str(cache),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
