"""The folder of an export: graphs, ids of the items, and a description of both."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from linrec.backbones import Backbone
from linrec.backbones.state import tensors_of
from linrec.baselines import Baseline
from linrec.export.check import (
    SHAPES,
    TOLERANCE,
    check_scorer,
    check_step,
    check_timed_step,
    open_session,
)
from linrec.export.graphs import HistoryScorer, Request, Step, TimedStep, bake_features
from linrec.export.repeats import WHY_NO_STEP
from linrec.export.tracing import (
    check_installed,
    trace_request,
    trace_scorer,
    trace_step,
    trace_timed_step,
)
from linrec.files.atomic import check_free, write_folder
from linrec.runs.catalogue import Catalogue
from linrec.runs.run import Run
from linrec.types import PAD, InputError, Seen, argument

MODEL, STEP, REQUEST = "model.onnx", "step.onnx", "request.onnx"
ITEMS, DESCRIPTION = "items.json", "export.json"


@dataclass(frozen=True)
class Exported:
    differences: dict[str, float]  # of each graph, relative to the largest score
    why_no_step: str | None


def export_onnx(
    run: Path,
    out: Path,
    *,
    top_k: int | None = None,
    seen: Seen | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write the model of a run as ONNX, once it has given torch's scores in onnxruntime.

    top_k: also rank the best items in the graph. seen: whether seen items are among them; None is
    as the run says.
    """
    check_installed()
    check_free(out, overwrite=overwrite, marker=DESCRIPTION)
    opened = Run.open(run)
    catalogue = opened.catalogue
    if top_k is not None and not 1 <= top_k <= len(catalogue):
        raise InputError(
            f"{argument('top_k', top_k)} must be from 1 to {len(catalogue)}, the number of items"
        )
    shown = opened.config.seen_in(seen)
    model = opened.load_model()
    if isinstance(model, Baseline):
        raise InputError(
            f"{run} is the baseline {model.config.backbone}, which only counts and has no graph to "
            "export; export a trained model"
        )
    if model.context:
        names = ", ".join(field.name for field in model.context)
        raise InputError(
            f"{run} reads the context of events ({names}), which an ONNX graph does not take yet; "
            "serve it with `linrec serve`, or export a model without context"
        )
    graph = bake_features(deepcopy(model))
    with write_folder(out, overwrite, marker=DESCRIPTION) as draft:
        popularity = catalogue.cold_start_scores()
        trace_scorer(HistoryScorer(graph, popularity, top_k, shown).eval(), draft / MODEL)
        differences = {MODEL: check_scorer(draft / MODEL, model)}
        why_no_step = model.why_no_state() or (WHY_NO_STEP if model.repeat is not None else None)
        if why_no_step is None:
            differences |= _write_steps(draft, graph, model, popularity)
        exported = Exported(differences, why_no_step)
        _write_json(draft / ITEMS, _items(catalogue))
        described = _description(draft, model, exported) | {"seen": shown}
        _write_json(draft / DESCRIPTION, described)
    return exported


def _write_steps(
    draft: Path, graph: Backbone, model: Backbone, popularity: Tensor
) -> dict[str, float]:
    """The graphs that go event by event, and how far each is from torch."""
    if not model.config.time_gaps:
        trace_step(Step(graph).eval(), draft / STEP)
        return {STEP: check_step(draft / STEP, model)}
    trace_timed_step(TimedStep(graph).eval(), draft / STEP)
    trace_request(Request(graph, popularity).eval(), draft / REQUEST)
    difference = check_timed_step(draft / STEP, draft / REQUEST, model)
    return {STEP: difference, REQUEST: difference}  # a step has no scores but the request's


def _items(catalogue: Catalogue) -> dict[str, list[Any]]:
    """By index, so that index 0 has nothing."""
    table = catalogue.table
    columns = [name for name in ("item", "title") if name in table.columns]
    return {name: [None, *table[name].to_list()] for name in columns}


def _description(folder: Path, model: Backbone, exported: Exported) -> dict[str, Any]:
    config = model.config
    content: dict[str, Any] = {
        "linrec": version("linrec"),
        "backbone": config.backbone,
        "attention": config.attention,
        "max_length": config.max_length,
        "reads_time": config.time_gaps,
        "items": model.n_items,
        "pad": PAD,
        "graphs": {name: _ports(folder / name) for name in exported.differences},
        "checked": {
            "differences": exported.differences, "tolerance": TOLERANCE, "shapes": SHAPES,
        },
    }  # fmt: skip
    if exported.why_no_step is None:
        state = tensors_of(model.start(1) if config.time_gaps else model.start_closed(1))
        content["start"] = {name: _number(part) for name, part in state.items()}
    else:
        content["why_no_step"] = exported.why_no_step
    return content


def _number(part: Tensor) -> float | None:
    """What a part of the state is filled with at the start; null is NaN, which JSON has not."""
    number: float = part.flatten()[0].item()
    return None if math.isnan(number) else number


def _ports(path: Path) -> dict[str, Any]:
    session = open_session(path)
    return {
        side: [{"name": port.name, "shape": port.shape, "type": port.type} for port in ports]
        for side, ports in (("inputs", session.get_inputs()), ("outputs", session.get_outputs()))
    }


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
