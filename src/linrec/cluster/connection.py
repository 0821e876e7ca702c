"""Ray itself: imported by who asks for it, started or connected to, and left as it was found."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from linrec.types import InputError, argument

CONNECT_SECONDS = 10.0
STORE_BYTES = 128 * 1024**2  # datasets are read from disk, and results are small
# a cluster of one command has nobody to report to, workers are started plainly, and a task without
# GPUs still sees those of its machine (Ray's coming default); what the user has set stays
SETTINGS = (
    "RAY_USAGE_STATS_ENABLED",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
)


def imported() -> Any:
    """The library, or a sentence on how to install it."""
    for name in SETTINGS:
        os.environ.setdefault(name, "0")
    try:
        return import_module("ray")
    except ImportError:
        raise InputError(
            f"{argument('engine', 'ray')} needs Ray, which is not installed; `pip install "
            f"'linrec[ray]'` adds it, or leave {argument('engine')} out"
        ) from None


@contextmanager
def connected(address: str | None, cpus: int | None) -> Iterator[Any]:
    """The cluster at an address, or one of `cpus` here for as long as the block takes."""
    ray = imported()
    common: dict[str, Any] = {
        "logging_level": "ERROR", "log_to_driver": False, "namespace": f"linrec-{uuid.uuid4().hex}",
    }  # fmt: skip
    if address is None:
        ray.init(
            address="local", num_cpus=cpus, include_dashboard=False,
            object_store_memory=STORE_BYTES, **common,
        )  # fmt: skip
        _end_helpers(ray)
    else:
        _reach(ray, address, common)
    try:
        yield ray
    finally:
        ray.shutdown()


def _end_helpers(ray: Any) -> None:
    """End the scaling and the logs of a cluster that is ours alone, which has no use for them.

    The first does not end for a second after it is told to, and Ray would wait for that. Ray has no
    setting for either; where its own names have changed they stay.
    """
    with suppress(Exception):
        node = ray._private.worker._global_node
        node.kill_monitor(check_alive=False)
        node.kill_log_monitor(check_alive=False)


def check_address(address: str | None) -> None:
    """Refuse what is not the address of a cluster, before anything is opened."""
    if address is None or address == "auto":
        return
    if address.startswith("ray://"):
        raise InputError(
            f"{argument('address', address)} is the address of a Ray client; run the command on a "
            "machine of the cluster, and give HOST:PORT or auto"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"{argument('address', address)} is not HOST:PORT or auto")


def _reach(ray: Any, address: str, common: dict[str, Any]) -> None:
    """Connect. Ray itself would try for minutes."""
    check_address(address)
    host, _, port = address.rpartition(":")
    try:
        if address != "auto":
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(address=address, **common)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        with suppress(Exception):
            ray.shutdown()
        reason = getattr(error, "strerror", None) or str(error).strip().splitlines()[0]
        raise InputError(
            f"no Ray cluster answers at {argument('address', address)} ({reason}); start one with "
            "`ray start --head`, or correct the address"
        ) from error
