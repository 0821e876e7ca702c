"""Which of how many processes this one is, as torchrun and `linrec train --workers` say it.

Nothing here needs torch, so that the command line can ask before it imports it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from linrec.types import InputError, LinrecError, argument

REMEDY = "start it with torchrun, or unset WORLD_SIZE to train in one process"


class WorkerLostError(LinrecError):
    """A process of the group has ended, and no step can be taken without it."""

    def __init__(self, rank: int, count: int) -> None:
        super().__init__(
            f"worker {rank + 1} of {count} has lost another one and stops; the same command with "
            f"{argument('resume', True)} continues from the last checkpoint"
        )


@dataclass(frozen=True)
class World:
    """The processes of a training."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1

    @classmethod
    def of_environment(cls) -> World:
        count = _number("WORLD_SIZE", 1, least=1)
        if count == 1:
            return cls()
        local = _number("LOCAL_WORLD_SIZE", count, least=1)
        world = cls(_number("RANK"), count, _number("LOCAL_RANK"), local)
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            if not os.environ.get(name):
                raise InputError(f"WORLD_SIZE is {count}, but {name} is not set; {REMEDY}")
        if world.rank >= count or world.local_rank >= local:
            raise InputError(
                f"RANK {world.rank} and LOCAL_RANK {world.local_rank} do not fit WORLD_SIZE "
                f"{count} and LOCAL_WORLD_SIZE {local}; {REMEDY}"
            )
        if count % local:
            raise InputError(
                f"{count} workers cannot be divided over machines of {local} each; give every "
                "machine as many workers"
            )
        return world

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run and shows the progress."""
        return self.rank == 0

    @property
    def machines(self) -> int:
        return self.count // self.local_count


def _number(name: str, default: int | None = None, least: int = 0) -> int:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    if text is None:
        raise InputError(f"WORLD_SIZE is set, but {name} is not; {REMEDY}")
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise InputError(f"{name} must be a number from {least} on, not {text!r}; {REMEDY}")
    return int(text)
