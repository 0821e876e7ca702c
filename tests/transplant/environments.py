"""Environments of the frameworks that linrec is transplanted into: .envs/NAME for envs/NAME.txt.

    make envs   # all that are missing or out of date; `make test` does it too

torch is a gigabyte, so an environment links the one of the python that builds it. Where the
registry cannot be reached this is noted, and the tests of that framework skip with the note.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PINS = Path(__file__).parent / "envs"
PLACE = REPO / ".envs"
NAMES = sorted(path.stem for path in PINS.glob("*.txt"))
SECONDS = 240  # for one environment; a registry that takes longer counts as out of reach
OUT_OF_REACH = ("Retrying (", "ConnectionError", "Connection refused", "ReadTimeout")


def python_of(name: str) -> Path:
    return PLACE / name / "bin" / "python"


def stamp(name: str) -> Path:
    return PLACE / f"{name}.ready"


def note(name: str) -> Path:
    """Why there is no such environment, where there is none."""
    return PLACE / f"{name}.unreachable"


def fingerprint(name: str) -> str:
    about = (PINS / f"{name}.txt").read_bytes() + distribution("torch").version.encode()
    return hashlib.sha256(about + sys.version.encode()).hexdigest()


def is_ready(name: str) -> bool:
    here = stamp(name).is_file() and stamp(name).read_text() == fingerprint(name)
    return here and python_of(name).exists()


def build(name: str) -> str | None:
    """Make the environment; the end of pip's output where that failed."""
    stamp(name).unlink(missing_ok=True)
    note(name).unlink(missing_ok=True)
    began = time.monotonic()
    home = PLACE / name
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", home], check=True)
    link_torch(home)
    failure = install(name)
    if failure is None:
        stamp(name).write_text(fingerprint(name))
        print(f".envs/{name} is ready, after {time.monotonic() - began:.0f} s", flush=True)
    elif any(sign in failure for sign in OUT_OF_REACH):
        note(name).write_text(f"the registry is out of reach: {failure.splitlines()[-1]}")
        print(f".envs/{name} is not there: {note(name).read_text()}", flush=True)
        return None
    return failure


def link_torch(home: Path) -> None:
    torch = distribution("torch")
    here = Path(str(torch.locate_file("")))
    there = next(home.glob("lib/python*/site-packages"))
    for name in {path.parts[0] for path in torch.files or () if path.parts[0] != ".."}:
        (there / name).symlink_to(here / name)


def install(name: str) -> str | None:
    command = [
        sys.executable, "-m", "pip", "--python", python_of(name), "install", "--no-deps", "--quiet",
        "--disable-pip-version-check", "--no-compile", "--retries", "1", "--timeout", "15",
        "--requirement", PINS / f"{name}.txt",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=REPO
        )
    except subprocess.TimeoutExpired:
        return f"ReadTimeout: pip took longer than {SECONDS} s"
    return None if done.returncode == 0 else done.stderr.strip() or "pip failed without a word"


def run(
    name: str, module: str, *arguments: str, seconds: float
) -> subprocess.CompletedProcess[str]:
    """A module of this repository by the environment's python, which knows linrec by its source.

    It runs in an empty folder, because RecBole leaves logs wherever it is.
    """
    ours = ("PYTHON", "COV_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    path = os.pathsep.join([str(REPO / "src"), str(REPO)])
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [python_of(name), "-W", "ignore", "-m", module, *arguments],
            cwd=folder,
            env=kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


def main() -> int:
    PLACE.mkdir(exist_ok=True)
    missing = [name for name in NAMES if not is_ready(name)]
    if missing:
        print(
            f"setting up {', '.join(f'.envs/{name}' for name in missing)} (once; a minute or two)"
        )
    with ThreadPoolExecutor(2) as two:  # one unpacks while the other downloads
        failures = dict(zip(missing, two.map(build, missing), strict=True))
    for name, failure in failures.items():
        if failure is not None:
            print(f".envs/{name} could not be made:\n{failure}", file=sys.stderr)
    return int(any(failure is not None for failure in failures.values()))


if __name__ == "__main__":
    sys.exit(main())
