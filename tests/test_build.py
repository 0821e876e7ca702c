"""The package builds with a compiler and without one, and says which."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
CMAKE, NINJA = (
    shutil.which(name, path=f"{BIN}{os.pathsep}{os.environ['PATH']}") for name in ("cmake", "ninja")
)

pytestmark = pytest.mark.skipif(CMAKE is None or NINJA is None, reason="cmake or ninja is missing")


def configure(build: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Without a compiler: none on the PATH, none named."""
    empty = build.parent / "empty"
    empty.mkdir()
    hidden = {k: v for k, v in os.environ.items() if k not in ("CC", "CXX", "CFLAGS", "CXXFLAGS")}
    command = [str(CMAKE), "-S", str(REPO), "-B", str(build), "-G", "Ninja"]
    return subprocess.run(
        [*command, f"-DCMAKE_MAKE_PROGRAM={NINJA}"],
        env=hidden | {"PATH": str(empty)} | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_a_compiler_the_package_builds_without_kernels(tmp_path: Path) -> None:
    done = configure(tmp_path / "build")
    assert done.returncode == 0, done.stderr
    assert "linrec: no kernels: no C++ compiler was found" in done.stdout


def test_who_builds_wheels_can_insist_on_kernels(tmp_path: Path) -> None:
    done = configure(tmp_path / "build", LINREC_REQUIRE_KERNELS="1")
    assert done.returncode != 0
    assert "no C++ compiler was found" in done.stderr
