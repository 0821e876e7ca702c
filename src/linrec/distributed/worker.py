"""What each worker of a training on Ray does: the same as under torchrun."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linrec.cluster.connection import imported
from linrec.distributed.forwarding import Forwarded
from linrec.evaluation import Evaluation
from linrec.recommender import Recommender
from linrec.runs.config import AnyConfig
from linrec.training.callbacks import Callback
from linrec.training.loop import Trained
from linrec.training.world import WorkerLostError
from linrec.types import InputError, LinrecError


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training: the arguments of `Recommender` and of `fit`."""

    data: Path
    out: Path
    recipe: str
    start: Path | None
    settings: Mapping[str, Any]
    resume: bool = False
    overwrite: bool = False


@dataclass(frozen=True)
class Finished:
    """What a training has made, besides the run folder."""

    model: AnyConfig
    trained: Trained
    evaluation: Evaluation | None


@dataclass(frozen=True)
class Failed:
    """How a worker ended that could not go on; not every exception can be sent."""

    sentence: str
    code: int
    lost: bool = False  # because another one was lost
    refused: bool = False  # for what the caller gave


def train_here(job: Job, callbacks: Sequence[Callback] = ()) -> Finished:
    """In this process, which may be one of a group."""
    made = Recommender(recipe=job.recipe, start=job.start, **job.settings)
    made.fit(job.data, job.out, resume=job.resume, overwrite=job.overwrite, callbacks=callbacks)
    assert made.trained is not None
    return Finished(made.config.model, made.trained, made.test_evaluation)


class TrainingWorker:
    """An actor: one process of the group, which ends with it."""

    def address(self) -> tuple[str, int]:
        """Of the first worker: where the others find the group."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        host = imported().util.get_node_ip_address()
        # kept here, so that no other program can take its port in between
        self.store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return host, self.store.port

    def train(
        self, environment: Mapping[str, str], job: Job, mailbox: Any, attempt: int
    ) -> Finished | Failed:
        os.environ.update(environment)
        # a terminal sends Ctrl-C to every process of a cluster that was started here; the driver's
        # word counts, so that all stop after the same step
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if environment["RANK"] != "0":
            return self._outcome(job, [])
        forwarded = Forwarded(imported(), mailbox, attempt)
        outcome = self._outcome(job, [forwarded])
        forwarded.flush()
        return outcome

    def _outcome(self, job: Job, callbacks: Sequence[Callback]) -> Finished | Failed:
        try:
            return train_here(job, callbacks)
        except WorkerLostError as error:
            return Failed(str(error.args[0]), error.exit_code, lost=True)
        except LinrecError as error:
            refused = isinstance(error, InputError)
            return Failed(str(error.args[0]), error.exit_code, refused=refused)


def environment_of(rank: int, count: int, address: tuple[str, int]) -> dict[str, str]:
    """As torchrun sets it for machines of one worker each: a worker sees no GPU but its own."""
    return {
        "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": address[0], "MASTER_PORT": str(address[1]),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is there before the group
    }  # fmt: skip
