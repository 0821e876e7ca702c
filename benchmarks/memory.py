"""The most memory a process ever held."""

from __future__ import annotations

import resource
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_mb() -> float:
    """Of this process alone: what getrusage tells on Linux begins with its parent's memory."""
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
