"""Trials as tasks of a Ray cluster.

Workers only train. After each epoch a worker sends its figure to a mailbox and waits for the
answer of the driver, which owns the study: so what is pruned does not depend on where trials run,
and with one trial at a time the study is the one that a single process makes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from linrec.cluster.connection import connected, imported
from linrec.cluster.nodes import check_nodes
from linrec.data.dataset.store import SequenceStore
from linrec.files.guard import first_line
from linrec.tuning.driver import Driver
from linrec.tuning.options import TuneOptions
from linrec.tuning.trial import Job, Outcome, run_trial
from linrec.types import InputError, LinrecError, argument


@contextmanager
def cluster(options: TuneOptions, store: SequenceStore) -> Iterator[Path]:
    """Connect, or start a cluster for as long as the block takes; the dataset as workers see it."""
    if store.path is None:
        raise InputError(
            f"the workers of {argument('engine', 'ray')} read the dataset from disk, and this one "
            "is only in memory; give the folder of `linrec prepare`"
        )
    folder = store.path.resolve()
    if options.address is None:
        _check_cores(options)
    with connected(options.address, options.concurrent * options.cpus_per_trial) as ray:
        _check_resources(ray.cluster_resources(), options)
        check_nodes(ray, [folder / "dataset.json"])
        yield folder


def run_on_ray(driver: Driver, folder: Path) -> None:
    """At most `concurrent` trials at once; each is a task."""
    library, options = imported(), driver.options
    mailbox = library.remote(num_cpus=0)(Mailbox).remote()
    # a lost trial is repeated by the driver, which knows of it
    task = library.remote(
        num_cpus=options.cpus_per_trial, num_gpus=options.gpus_per_trial, max_retries=0
    )(_work)
    pending: dict[Any, int] = {}
    inbox = mailbox.take.remote()
    while True:
        while len(pending) < options.concurrent and (job := driver.next()) is not None:
            pending[task.remote(replace(job, data=folder), mailbox)] = job.number
        if not pending:
            return
        (ready,), _ = library.wait([inbox, *pending], num_returns=1)
        if ready == inbox:
            number, epoch, value = library.get(inbox)
            stop = number not in driver.running or driver.judge(number, epoch, value)
            mailbox.answer.remote(number, stop)
            inbox = mailbox.take.remote()
        else:
            _finish(library, driver, ready, pending.pop(ready))


def _finish(library: Any, driver: Driver, task: Any, number: int) -> None:
    try:
        outcome: Outcome = library.get(task)
    except library.exceptions.RayTaskError as error:  # what the training itself raised
        if isinstance(error.cause, LinrecError):
            raise error.cause from None
        raise
    except library.exceptions.RayError as error:
        driver.lose(number, first_line(error))
        return
    driver.done(number, outcome)


class Mailbox:
    """Carries figures from the workers to the driver, and its answers back."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[tuple[int, int, float]] = asyncio.Queue()
        self.answers: dict[int, asyncio.Future[bool]] = {}

    async def report(self, number: int, epoch: int, value: float) -> bool:
        """Of a worker: whether to stop."""
        self.answers[number] = asyncio.get_running_loop().create_future()
        await self.reports.put((number, epoch, value))
        return await self.answers[number]

    async def take(self) -> tuple[int, int, float]:
        """Of the driver: the next figure."""
        return await self.reports.get()

    async def answer(self, number: int, stop: bool) -> None:
        """Of the driver."""
        self.answers.pop(number).set_result(stop)


def _work(job: Job, mailbox: Any) -> Outcome:
    """In a worker."""
    library = imported()

    def report(epoch: int, value: float) -> bool:
        return bool(library.get(mailbox.report.remote(job.number, epoch, value)))

    return run_trial(job, report)


def _check_cores(options: TuneOptions) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    _check_resources({"CPU": float(cores or 1), "GPU": options.gpus_per_trial * 1e9}, options)


def _check_resources(available: dict[str, float], options: TuneOptions) -> None:
    needed = {"CPU": options.cpus_per_trial, "GPU": options.gpus_per_trial}
    for name, each in needed.items():
        there = available.get(name, 0.0)
        if each * options.concurrent > there:
            most = int(there // each)
            remedy = (
                f"choose at most {argument('concurrent', most)}" if most else "add machines to it"
            )
            raise InputError(
                f"{argument('concurrent', options.concurrent)} needs "
                f"{each * options.concurrent:g} {name}s, and there are {there:g}; {remedy}"
            )
