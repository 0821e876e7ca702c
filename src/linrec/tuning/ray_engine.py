"""Trials as tasks of a Ray cluster.

Workers only train. After each epoch a worker sends its figure to a mailbox and waits for the
answer of the driver, which owns the study: so what is pruned does not depend on where trials run,
and with one trial at a time the study is the one that a single process makes.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from linrec.data.dataset.store import SequenceStore
from linrec.files.guard import first_line
from linrec.tuning.driver import Driver
from linrec.tuning.options import TuneOptions
from linrec.tuning.trial import Job, Outcome, run_trial
from linrec.types import InputError, LinrecError, argument

STORE_BYTES = 100_000_000  # of a cluster of our own: datasets are read from disk, not sent
REACH_SECONDS = 5.0
PROBE_SECONDS = 60.0


def ray() -> Any:
    """The library, which is imported only by who asks for it."""
    # a cluster of one command has nobody to report to; what the user has set stays
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_UV_RUN_RUNTIME_ENV"):
        os.environ.setdefault(name, "0")
    # the coming default: a task without GPUs still sees those of its machine
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return import_module("ray")
    except ImportError:
        raise InputError(
            f"{argument('engine', 'ray')} needs Ray, which is not installed; `pip install "
            f"'linrec[ray]'` adds it, or leave {argument('engine')} out"
        ) from None


@contextmanager
def cluster(options: TuneOptions, store: SequenceStore) -> Iterator[Path]:
    """Connect, or start a cluster for as long as the block takes; the dataset as workers see it."""
    library = ray()
    if store.path is None:
        raise InputError(
            f"the workers of {argument('engine', 'ray')} read the dataset from disk, and this one "
            "is only in memory; give the folder of `linrec prepare`"
        )
    folder = store.path.resolve()
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    if options.address is None:
        _check_cores(options)
        library.init(
            num_cpus=options.concurrent * options.cpus_per_trial, include_dashboard=False,
            object_store_memory=STORE_BYTES, **quiet,
        )  # fmt: skip
    else:
        _reach(library, options.address, quiet)
    try:
        _check_resources(library.cluster_resources(), options)
        _probe(library, folder)
        yield folder
    finally:
        library.shutdown()


def run_on_ray(driver: Driver, folder: Path) -> None:
    """At most `concurrent` trials at once; each is a task."""
    library, options = ray(), driver.options
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
    library = import_module("ray")

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


def _reach(library: Any, address: str, quiet: dict[str, Any]) -> None:
    """Connect to a cluster; Ray itself would try for minutes."""
    trouble = f"no Ray cluster answers at {argument('address', address)}"
    remedy = "check the address with `ray status`, or leave it out for a cluster of its own"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host, int(port)), REACH_SECONDS).close()
        library.init(address=address, **quiet)
    except (OSError, ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"{trouble} ({first_line(error)}); {remedy}") from None


def _probe(library: Any, folder: Path) -> None:
    """Whether every machine has this version of linrec and sees the dataset."""
    own, name = version("linrec"), str(folder / "dataset.json")

    def look() -> tuple[str | None, bool]:  # sent by value: a machine may lack the package
        import importlib.metadata as metadata
        from pathlib import Path

        try:
            found = metadata.version("linrec")
        except metadata.PackageNotFoundError:
            return None, False
        return found, Path(name).is_file()

    at = library.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    nodes = [node for node in library.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    probes = {
        library.remote(look)
        .options(num_cpus=0, scheduling_strategy=at(node["NodeID"], soft=False))
        .remote(): node["NodeManagerHostname"]
        for node in nodes
    }
    for probe, host in probes.items():
        try:
            found, sees = library.get(probe, timeout=PROBE_SECONDS)
        except library.exceptions.RayError as error:
            raise InputError(
                f"the Ray worker on {host} does not answer ({first_line(error)}); remove it from "
                "the cluster, or start it again"
            ) from None
        if found != own:
            has = "no linrec" if found is None else f"linrec {found}"
            raise InputError(
                f"the Ray worker on {host} has {has}, and this is {own}; install {own} there"
            )
        if not sees:
            raise InputError(
                f"the Ray worker on {host} does not see {folder}; put the dataset where all "
                "machines see it under the same path"
            )
