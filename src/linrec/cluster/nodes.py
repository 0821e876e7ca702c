"""Whether every machine of a Ray cluster can do the work: the same linrec, the same files."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from linrec.files.copies import CACHE, cache_folder
from linrec.files.remote import Address
from linrec.types import InputError

ANSWER_SECONDS = 60.0


def on_this_node(ray: Any) -> dict[str, Any]:
    """Options of an actor that is to live, and to end, with this process and no other machine."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    return {
        "num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False),
    }  # fmt: skip


def check_nodes(ray: Any, paths: Sequence[Path], seconds: float = ANSWER_SECONDS) -> None:
    """Ask each machine, and say in one sentence what the first one lacks.

    What is in object storage is left to the worker that reads it.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    named = [str(path.resolve()) for path in paths if not isinstance(path, Address)]
    ask = ray.remote(_question())
    nodes = [node for node in ray.nodes() if node["Alive"]]
    answers = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        sent = ask.options(num_cpus=0, scheduling_strategy=there)
        answers.append(sent.remote(named))
    for node, answer in zip(nodes, answers, strict=True):
        host = node.get("NodeManagerHostname") or node["NodeManagerAddress"]
        try:
            trouble = trouble_of(ray.get(answer, timeout=seconds), named)
        except ray.exceptions.GetTimeoutError:
            trouble = f"did not answer within {seconds:g} s; look at it with `ray status`"
        except ray.exceptions.RayError as error:
            trouble = f"could not run a task ({type(error).__name__}); look at it with `ray status`"
        if trouble is not None:
            raise InputError(f"the machine {host} of the Ray cluster {trouble}")


def trouble_of(answer: dict[str, Any], paths: Sequence[str]) -> str | None:
    """What is wrong with an answer, None if nothing is."""
    version, here = answer["linrec"], installed("linrec")
    if version is None:
        return f"has no linrec; install version {here} there"
    if version != here:
        return f"has linrec {version} and this one is {here}; install the same version on both"
    unseen = [path for path, seen in zip(paths, answer["sees"], strict=True) if not seen]
    if unseen:
        use = f"set {CACHE} to" if Path(unseen[0]).is_relative_to(cache_folder()) else "use"
        return (
            f"cannot see {unseen[0]}; {use} a path on a file system that all machines share, under "
            f"the same name (this is {platform.node()})"
        )
    return None


def _question() -> Any:
    """Made here, so that Ray sends its text and the other side needs no linrec to read it."""

    def question(paths: list[str]) -> dict[str, Any]:
        import importlib.metadata
        import pathlib

        try:
            version = importlib.metadata.version("linrec")
        except importlib.metadata.PackageNotFoundError:
            version = None
        return {"linrec": version, "sees": [pathlib.Path(path).exists() for path in paths]}

    question.__module__ = "__main__"
    return question
