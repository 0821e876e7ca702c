"""A training whose workers Ray starts, on one machine or on many.

The driver trains nothing. It starts the group, and starts it again when a process or a machine is
lost; each attempt continues from the last checkpoint of the run folder. What the first worker tells
is shown here, and Ctrl-C here ends all workers after the same step.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from linrec.backbones.config import ModelConfig
from linrec.cluster.connection import connected
from linrec.cluster.nodes import check_nodes, on_this_node
from linrec.cluster.options import EngineOptions
from linrec.distributed.forwarding import Heard
from linrec.distributed.group import ROOM_SECONDS, Group, LostError, NoRoomError
from linrec.distributed.mailbox import Mailbox
from linrec.distributed.worker import Failed, Finished, Job
from linrec.files.remote import is_file, is_folder, place
from linrec.runs.recipes import is_shipped
from linrec.runs.run import Run
from linrec.runs.warm_settings import settings_for
from linrec.training.callbacks import Callback, CallbackList
from linrec.training.plan import check_folder
from linrec.training.world import World
from linrec.types import InputError, LinrecError, argument

RESTARTS = 10  # of the group, before the command gives up


class TrainingFailedError(LinrecError):
    """The workers cannot go on."""


class DivergedError(TrainingFailedError):
    """As that of a training in one process."""

    exit_code: ClassVar[int] = 3


def train_on_ray(job: Job, engine: EngineOptions, callbacks: Sequence[Callback] = ()) -> Finished:
    """Train in the workers of a cluster; the run folder is that of `Recommender.fit`."""
    device = _device(job)
    check_folder(job.out, resume=job.resume, overwrite=job.overwrite)
    job = _resolved(job)
    shared = [path for path in (job.data, job.start) if path is not None]
    shared += [] if is_shipped(job.recipe) else [Path(job.recipe)]
    for path in shared:
        if not (is_file(path) or is_folder(path)):
            raise InputError(f"{path} does not exist; correct the path")
    shared.append(next(path for path in job.out.parents if path.exists()))
    with connected(engine.address, _cores(engine)) as ray:
        workers, gpus = _resources(ray, engine, device)
        if engine.address is not None:  # here, all is as it is for this process
            check_nodes(ray, shared)
        return _Driver(ray, workers, gpus, CallbackList(callbacks)).train(job)


class _Driver:
    """Starts groups until one of them reaches the end."""

    def __init__(self, ray: Any, workers: int, gpus: bool, callbacks: CallbackList) -> None:
        self.ray, self.workers, self.gpus, self.callbacks = ray, workers, gpus, callbacks
        self.mailbox = ray.remote(Mailbox).options(**on_this_node(ray)).remote()
        self.heard = Heard(callbacks)
        self.attempt = self.interrupts = 0
        self.stopping = False

    def train(self, job: Job) -> Finished:
        finished = False
        try:
            self.callbacks.on_fit_start()
            with self._listening():
                result = self._until_the_end(job)
            finished = not result.trained.interrupted
            return result
        finally:
            self.callbacks.on_fit_end(finished=finished)

    def _until_the_end(self, job: Job) -> Finished:
        while True:
            outcome = self._attempted(self._continued(job))
            if isinstance(outcome, Finished):
                return outcome
            if not outcome.lost:
                _raise(outcome)
            self.attempt += 1
            if self.attempt > RESTARTS:
                raise TrainingFailedError(
                    f"a worker was lost {self.attempt} times, as when memory runs out; give fewer "
                    f"{argument('workers')} or machines with more memory, and "
                    f"{argument('resume', True)} to continue from the last checkpoint"
                )
            self.callbacks.on_message(
                f"A worker was lost; all start again from the last checkpoint ({self.attempt} of "
                f"at most {RESTARTS} times)"
            )

    def _attempted(self, job: Job) -> Finished | Failed:
        group = Group(self.ray, self.workers, self.gpus, self._look)
        try:
            group.start(job, self.mailbox, self.attempt)
            outcome = group.wait()
            self._hear()
        except LostError as error:
            return Failed(str(error), 1, lost=True)
        except NoRoomError:
            raise TrainingFailedError(
                f"the Ray cluster had no room for {argument('workers', self.workers)} within "
                f"{ROOM_SECONDS / 60:g} minutes; add machines or wait for other work to end, and "
                f"give {argument('resume', True)} to continue a run that has begun"
            ) from None
        finally:
            group.end()
        return outcome

    def _continued(self, job: Job) -> Job:
        """An attempt after a loss continues what the run has."""
        # with `overwrite` an older run stays in its place until this one has weights
        begun = Run.exists(job.out) and (self.heard.has_run or not job.overwrite)
        return replace(job, resume=True, overwrite=False) if self.attempt and begun else job

    def _look(self) -> None:
        """Show what has come, and pass a wish to stop on."""
        self._hear()
        if self.interrupts > 1 or (self.interrupts and not (self.stopping or self.heard.in_steps)):
            raise KeyboardInterrupt
        if (self.interrupts or self.callbacks.stop_training) and not self.stopping:
            self.stopping = True
            self.mailbox.stop.remote()

    def _hear(self) -> None:
        for stored in self.ray.get(self.mailbox.take.remote()):
            message = None
            # what a lost worker wrote is lost with it; the next attempt says its own
            with suppress(self.ray.exceptions.RayError):
                message = self.ray.get(stored)
            if message is not None:
                self.heard(message, self.attempt)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Ctrl-C is looked at between messages."""

        def pressed(number: int, frame: FrameType | None) -> None:
            del number, frame
            self.interrupts += 1

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, pressed)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _device(job: Job) -> str:
    """Of the settings, which are refused here rather than by a worker."""
    world = World.of_environment()
    if world.count > 1:
        raise InputError(
            f"this is one of {world.count} processes already (WORLD_SIZE); leave "
            f"{argument('engine')} out under torchrun"
        )
    config = settings_for(job.recipe, job.start, dict(job.settings))
    if not isinstance(config.model, ModelConfig):
        raise InputError(
            f"the baseline {config.model.backbone} is counted in one pass, which several workers "
            f"would only repeat; leave {argument('engine')} out"
        )
    return config.training.device


def _raise(failed: Failed) -> None:
    if failed.refused:
        raise InputError(failed.sentence)
    diverged = failed.code == DivergedError.exit_code
    raise (DivergedError if diverged else TrainingFailedError)(failed.sentence)


def _resolved(job: Job) -> Job:
    """Workers may have another current folder."""
    recipe = job.recipe if is_shipped(job.recipe) else str(Path(job.recipe).resolve())
    start = None if job.start is None else job.start.resolve()
    return replace(
        job, data=place(job.data).resolve(), out=job.out.resolve(), recipe=recipe, start=start
    )


def _cores(engine: EngineOptions) -> int | None:
    """CPUs of a cluster that is started here: no more than this machine has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if engine.address is None and engine.workers is not None and engine.workers > (cores or 1):
        raise InputError(
            f"{argument('workers', engine.workers)} need a CPU each, and this machine has "
            f"{cores}; give fewer, or {argument('address')} of a Ray cluster"
        )
    return engine.workers


def _resources(ray: Any, engine: EngineOptions, device: str) -> tuple[int, bool]:
    """The number of workers, and whether each has a GPU."""
    there = ray.cluster_resources()
    cpus, gpus = int(there.get("CPU", 0)), int(there.get("GPU", 0))
    on_gpus = device == "cuda" or (device == "auto" and gpus > 0)
    name, count = ("GPU", min(gpus, cpus)) if on_gpus else ("CPU", cpus)
    workers = engine.workers or count
    if not count or workers > count:
        remedy = f"train with {argument('device', 'cpu')}, " if on_gpus and cpus else ""
        raise InputError(
            f"{argument('workers', workers)} need a {name} each, and the Ray cluster has {count}; "
            f"{remedy}give fewer, or add machines"
        )
    return workers, on_gpus
