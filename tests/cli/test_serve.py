"""`linrec serve` before it listens: what it refuses, and what it takes over."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from linrec.serving import Engine, open_store
from tests.cli.conftest import Command, Refused


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINREC_TOKEN", raising=False)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Engine, Any]]:
    """What would have been served."""
    import linrec.serving.http.server as server

    calls: list[tuple[Engine, Any]] = []
    monkeypatch.setattr(server, "serve", lambda *given: calls.append(given[:2]))
    return calls


def test_mistakes(refused: Refused, run: Path, tmp_path: Path) -> None:
    assert "no/such/run is not a run" in refused("serve", "no/such/run", "--port", "0")
    assert "no token is set" in refused("serve", run, "--host", "0.0.0.0")
    assert "--late never must be 'insert', 'append' or 'refuse'" in refused(
        "serve", run, "--port", "0", "--late", "never"
    )
    assert "cannot read the token" in refused("serve", run, "--token-file", tmp_path / "none")
    assert "is not a folder" in refused(
        "serve", run, "--port", "0", "--store", tmp_path / "a" / "b.sqlite"
    )
    assert "no dataset" in refused(
        "serve", run, "--port", "0", "--store", "memory", "--data", tmp_path / "none"
    )
    gone = f"redis://127.0.0.1:{free_port()}/0"
    dataset = run.parent / "data"
    message = refused("serve", run, "--port", "0", "--store", gone, "--data", dataset)
    assert "the Redis store does not answer" in message
    assert refused("serve", run, "--port", "0", "--store", gone) == (
        f"linrec: the Redis store does not answer at {gone}, so there is nothing to serve users "
        "from; start it, or set --store to another one\n"
    )
    secret = f"{gone.replace('://', '://user:secret@')}?password=secret"
    assert f"does not answer at {gone}, so" in refused(
        "serve", run, "--port", "0", "--store", secret
    )
    assert refused("serve", run, "--port", "0", "--store", "memory", "--workers", "2") == (
        "linrec: users in memory belong to one process, so --workers 2 cannot share them; set "
        "--store to a file or redis://host:6379/0\n"
    )
    assert not list(run.parent.glob("*.sqlite"))


def test_a_port_that_is_taken(refused: Refused, run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused("serve", run, "--store", "memory", "--port", port)
        assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in message


def test_without_the_extra(refused: Refused, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("linrec.serving.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install linrec[serve]" in refused("serve", run)


def test_users_of_the_dataset_are_taken_over(
    linrec: Command, run: Path, tmp_path: Path, served: list[tuple[Engine, Any]]
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    words = ["--store", tmp_path / "u.sqlite", "--data", run.parent / "data"]
    more = ["--port", "0", "--host", "0.0.0.0", "--token-file", token, "--keep-events", "7"]
    result = linrec("serve", run, *words, *more)
    assert result.code == 0, result.err
    assert "took over 48 users" in result.err
    assert "each event costs the same" in result.err
    engine, options = served[0]
    assert (options.host, options.token) == ("0.0.0.0", "0123456789abcdef")
    assert engine.settings.keep_events == 7
    assert engine.recommend("100").source == "model"
    engine.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_forgotten_stay_forgotten(
    linrec: Command, run: Path, tmp_path: Path, served: list[tuple[Engine, Any]]
) -> None:
    words = ["--store", tmp_path / "u.sqlite", "--data", run.parent / "data", "--port", "0"]
    assert linrec("serve", run, *words).code == 0
    served[0][0].forget("100")
    served[0][0].close()
    result = linrec("serve", run, *words)
    assert "1 were forgotten and stay so without --resurrect" in result.err
    served[1][0].close()
    assert "took over 1 users" in linrec("serve", run, *words, "--resurrect").err
    served[2][0].close()


def test_store_vacuum(linrec: Command, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "u.sqlite"
    open_store(str(path)).close()
    result = linrec("store", "vacuum", path)
    assert (result.code, result.err) == (0, "")
    assert "nothing of what was deleted remains" in result.out
    assert "is not a file" in refused("store", "vacuum", tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()
