from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.training.fixtures import dataset, run, store, trained

__all__ = ["dataset", "linrec", "refused", "run", "store", "trained"]


class Result(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Result]
Refused = Callable[..., str]


@pytest.fixture
def linrec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line as a shell meets it: words in; exit code, output and errors out."""
    from linrec.cli import main

    monkeypatch.setenv("COLUMNS", "160")

    def command(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["linrec", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        return Result(int(ended.value.code or 0), output.out, output.err)

    return command


@pytest.fixture
def refused(linrec: Command) -> Refused:
    """A command that must fail as every mistake does: one sentence, exit code 2."""

    def command(*words: object) -> str:
        result = linrec(*words)
        assert result.code == 2, result
        assert result.err.startswith("linrec: ")
        assert result.err.count("\n") == 1, result.err
        assert result.err.endswith("\n")
        assert "Traceback" not in result.err
        return result.err

    return command
