"""What every test may rely on: one thread, repeatable examples, and the real data where it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

REPO = Path(__file__).resolve().parents[1]

# the first example pays for torch's lazy set-up, so time says nothing about a law
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# xdist's workers already share the cores
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets, which lies beside the project and not in it."""
    place = REPO.parent / "shared" / "data"
    if not place.is_dir():
        pytest.skip(f"the real datasets are not here: {place} does not exist")
    return place
