"""From torch to ONNX, with batch and length left open."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linrec import ops
from linrec.backbones.state import tensors_of
from linrec.export.graphs import CHUNK, HistoryScorer, Step
from linrec.export.operators import TRANSLATIONS
from linrec.types import InputError

NEEDED = ("onnx", "onnxscript", "onnxruntime")
# protobuf holds two gigabytes at most; what is larger gets a file of weights beside it
LARGEST_FILE = 2**30


def check_installed() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(
            f"an export to ONNX needs {', '.join(missing)}; install it with "
            "pip install 'linrec[onnx]'"
        )


def trace_scorer(scorer: HistoryScorer, path: Path) -> None:
    # any sizes but 0 and 1, which torch takes for constants
    items = torch.ones(2, CHUNK + 3, dtype=torch.int64)
    named = ["scores"] if scorer.top_k is None else ["scores", "top_items", "top_scores"]
    shapes = {"items": {0: "batch", 1: "length"}}
    _trace(scorer, (items,), shapes, (["items"], named), path)


def trace_step(step: Step, path: Path) -> None:
    state = tensors_of(step.model.start_closed(2))
    shapes = {"item": {0: "batch"}, "state": [{0: "batch"} for _ in state]}
    inputs = (torch.ones(2, dtype=torch.int64), list(state.values()))
    named = ["item", *state], ["scores", *(f"next.{name}" for name in state)]
    _trace(step, inputs, shapes, named, path)


def _trace(
    graph: torch.nn.Module,
    inputs: tuple[Any, ...],
    shapes: dict[str, Any],
    named: tuple[Sequence[str], Sequence[str]],
    path: Path,
) -> None:
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    # no runtime knows the kernels' operator; what it stands for, every one does
    with torch.no_grad(), ops.without_kernels(), _quiet():
        # onnxscript's optimiser takes 1e-8 for zero, and a norm's epsilon would be gone; runtimes
        # optimise what they load by themselves
        program = torch.onnx.export(
            graph, inputs, dynamo=True, dynamic_shapes=shapes, verbose=False, optimize=False,
            input_names=named[0], output_names=named[1],
            custom_translation_table=TRANSLATIONS,
        )  # fmt: skip
        assert program is not None
        ClearMetadataAndDocStringPass()(program.model)  # every node tells where in Python it was
        program.save(path, external_data=_bytes(graph) > LARGEST_FILE)


def _bytes(graph: torch.nn.Module) -> int:
    tensors: list[Tensor] = [*graph.parameters(), *graph.buffers()]
    return sum(tensor.nbytes for tensor in tensors)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter talks to its developers; what matters is checked afterwards."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
