"""Damaged and hostile files of RUN and DATA: those that were found, and new ones for some seconds.

A file of the corpus is called after the file it stands in for, then `--` and what is wrong with it.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, outcome, with_file
from tests.training.fixtures import dataset, run

__all__ = ["dataset", "run"]

FUZZ_SECONDS = 6.0
KNOWN = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("*/*--*"))
INTERESTING = (b"\0", b"\xff" * 8, b"\x7f", b"-1", b"1e999", b"null", b"[" * 50_000, b'"', b"NaN")


@pytest.fixture
def bases(dataset: Path, run: Path) -> dict[str, Path]:
    return {"run": run, "data": dataset}


@pytest.mark.parametrize("known", KNOWN)
def test_a_known_hostile_file_is_refused(known: str, bases: dict[str, Path], tmp_path: Path):
    kind, name = known.split("/")
    content = (CORPUS / known).read_bytes()
    folder = with_file(bases[kind], tmp_path / "copy", name.split("--")[0], content)
    assert outcome(kind, folder) is not None


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
def test_mutated_files_are_read_or_refused(kind: str, bases: dict[str, Path], tmp_path: Path):
    chance = random.Random(7)
    until = time.monotonic() + FUZZ_SECONDS
    names = TARGETS[kind][1]
    for _ in range(400):
        name = chance.choice(names)
        content = mutated((bases[kind] / name).read_bytes(), chance)
        outcome(kind, with_file(bases[kind], tmp_path / "copy", name, content))
        if time.monotonic() > until:
            break


def mutated(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << chance.randrange(8)
            case 1:
                changed[at:at] = chance.choice(INTERESTING)
            case 2:
                changed[at : at + 8] = chance.randbytes(8)
            case 3:
                del changed[at : at + chance.randint(1, 64)]
            case _:
                start = chance.randrange(len(changed) + 1)
                changed[at:at] = changed[start : start + 32]
    return bytes(changed)
