"""A local source of archives that misbehaves on demand."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SMALL = 100  # bytes; below it is a checksum, and only archives are troubled


@dataclass
class Mirror:
    """Serves `files` by name; the other fields are faults, and the requests."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    shifted: bool = False  # a range other than the requested one
    redirect: bool = False  # by way of another path
    status: int = 200
    cut_after: int | None = None  # bytes of a response, then the connection closes
    chunked: bool = False  # no Content-Length
    pause: float = 0.0  # seconds before the answer
    stall_after: int | None = None  # bytes of a response, then silence
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, range

    def add(self, name: str, content: bytes, *, md5: bool = True) -> None:
        self.files[name] = content
        if md5:
            line = f"MD5 ({name}) = {hashlib.md5(content).hexdigest()}\n"
            self.files[f"{name}.md5"] = line.encode()

    def ranges_of(self, name: str) -> list[str | None]:
        return [byte_range for path, byte_range in self.requests if path.endswith(f"/{name}")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mirror: Mirror

    def do_GET(self) -> None:
        mirror = self.mirror
        byte_range = self.headers.get("Range")
        mirror.requests.append((self.path, byte_range))
        self.close_connection = True
        name = self.path.rpartition("/")[2]
        time.sleep(mirror.pause)
        if mirror.redirect and "/moved/" not in self.path:
            self._head(302, {"Location": f"/moved/{name}", "Content-Length": "0"})
        elif mirror.status != 200:
            self._head(mirror.status, {"Content-Length": "0"})
        elif name not in mirror.files:
            self._head(404, {"Content-Length": "0"})
        else:
            self._respond(mirror.files[name], byte_range if mirror.ranges else None)

    def _respond(self, content: bytes, byte_range: str | None) -> None:
        start = int(byte_range.removeprefix("bytes=").removesuffix("-")) if byte_range else 0
        if start >= len(content) and byte_range:
            self._head(416, {"Content-Range": f"bytes */{len(content)}", "Content-Length": "0"})
            return
        if byte_range and self.mirror.shifted:
            start = 0
        rest = content[start:]
        headers = {"Transfer-Encoding": "chunked"}
        if not self.mirror.chunked:
            headers = {"Content-Length": str(len(rest))}
        if byte_range:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._head(206 if byte_range else 200, headers)
        self._send(rest)

    def _send(self, rest: bytes) -> None:
        mirror = self.mirror
        stop = mirror.stall_after if mirror.cut_after is None else mirror.cut_after
        if len(rest) < SMALL:
            stop = None
        body = rest[:stop]
        if mirror.chunked:
            body = f"{len(body):x}\r\n".encode() + body + b"\r\n"
            body += b"" if stop is not None else b"0\r\n\r\n"
        self.wfile.write(body)
        self.wfile.flush()
        if stop is not None and mirror.stall_after is not None:
            self.rfile.read(1)  # until the other side has had enough

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Mirror]:
    mirror = Mirror()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"mirror": mirror}))
    mirror.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield mirror
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
