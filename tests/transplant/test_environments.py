"""A registry out of reach is noted and skipped; a pin that does not exist is a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transplant import environments

pytestmark = pytest.mark.peer


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    monkeypatch.setattr(environments, "PINS", tmp_path)
    (tmp_path / "tiny.txt").write_text("there-is-no-such-package==1.0\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def test_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # where nobody listens
    assert environments.build("tiny") is None
    assert "the registry is out of reach" in environments.note("tiny").read_text()
    assert not environments.is_ready("tiny")


def test_no_such_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    failure = environments.build("tiny")
    assert failure is not None
    assert "there-is-no-such-package" in failure
    assert not environments.note("tiny").exists()


def test_ready_until_its_pins_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "tiny.txt").write_text("# nothing but torch\n")
    assert environments.build("tiny") is None
    assert environments.is_ready("tiny")
    (tmp_path / "asks.py").write_text("import importlib.metadata as m; print(m.version('torch'))")
    monkeypatch.setattr(environments, "REPO", tmp_path)
    done = environments.run("tiny", "asks", seconds=100)
    assert done.stdout.strip() == environments.distribution("torch").version
    (tmp_path / "tiny.txt").write_text("# nothing but torch, said otherwise\n")
    assert not environments.is_ready("tiny")
