"""The real packages: every model builds, is converted, trains, and keeps the laws of its masks.

Each framework has an environment of its own (environments.py) and a runner in it. One test runs a
runner once and looks at all that it found.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.transplant import environments

pytestmark = [pytest.mark.slow, pytest.mark.peer]

# one float32 rounding a layer, relative to the outputs
ROUNDING = 1e-5
SECONDS = 400
# what reads both ways; the future of all others must not matter
BIDIRECTIONAL = {"BERT4Rec", "BERT4RecModel", "BERT, eager", "BERT, sdpa"}


def results(name: str, data: Path) -> dict[str, Any]:
    if not environments.is_ready(name):
        note = environments.note(name)
        pytest.skip(note.read_text() if note.is_file() else f".envs/{name} is not there: make envs")
    done = environments.run(name, f"tests.transplant.runners.{name}", str(data), seconds=SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def pinned(name: str, package: str) -> str:
    lines = (environments.PINS / f"{name}.txt").read_text("utf-8").splitlines()
    return next(line.split("==")[1] for line in lines if line.lower().startswith(f"{package}=="))


@pytest.mark.parametrize(
    ("name", "package", "models"),
    [
        ("recbole", "recbole", ["SASRec", "SASRecF", "BERT4Rec", "FDSA", "CORE"]),
        ("rectools", "rectools", ["SASRecModel", "BERT4RecModel"]),
        ("replay", "replay-rec", ["SasRec"]),
        (
            "transformers",
            "transformers",
            ["BERT, eager", "GPT-2, eager", "BERT, sdpa", "GPT-2, sdpa"],
        ),
    ],
)
def test_transplanted(shared_data: Path, name: str, package: str, models: list[str]) -> None:
    result = results(name, shared_data)
    assert result["version"] == pinned(name, package)
    assert result["torch"] == pinned(name, "torch")
    # of linrec only what needs nothing but torch
    assert result["rooms"] == ["nn", "ops", "transplant", "types"]
    assert list(result["models"]) == models
    for model, seen in result["models"].items():
        check_conversion(model, seen)
        check_laws(model, seen)
        check_learning(model, seen)


def check_conversion(model: str, seen: dict[str, Any]) -> None:
    layers = 4 if model == "FDSA" else 2  # FDSA has two stacks
    assert len(seen["replaced"]) == layers, (model, seen["replaced"])
    unknown = {"feature_att_layer"} if model == "FDSA" else set()  # it fuses features, not events
    assert set(seen["skipped"]) == unknown, (model, seen["skipped"])
    assert seen["weights_kept"], model
    assert seen["new_weights"] == ["decay_logit"], model
    # with softmax the original, with linrec-decay another function
    assert seen["softmax_error"] < ROUNDING, (model, seen["softmax_error"])
    assert seen["linear_change"] > 100 * ROUNDING, (model, seen["linear_change"])


def check_laws(model: str, seen: dict[str, Any]) -> None:
    assert seen["padding_error"] < ROUNDING, (model, seen["padding_error"])
    assert seen["past_change"] > 100 * ROUNDING, (model, seen["past_change"])
    if model in BIDIRECTIONAL:
        assert seen["future_error"] > 100 * ROUNDING, (model, seen["future_error"])
    else:
        assert seen["future_error"] < ROUNDING, (model, seen["future_error"])
    assert seen.get("cache_changes", 0) == 0, model


def check_learning(model: str, seen: dict[str, Any]) -> None:
    losses = seen["losses"]
    quarter = len(losses) // 4
    assert quarter >= 1, model
    assert sum(losses[-quarter:]) < 0.97 * sum(losses[:quarter]), (model, losses)


def test_every_environment_is_pinned_with_the_projects_torch() -> None:
    constraints = (environments.REPO / "constraints.txt").read_text("utf-8").splitlines()
    torch = next(line for line in constraints if line.startswith("torch=="))
    assert environments.NAMES == ["recbole", "rectools", "replay", "transformers"]
    for name in environments.NAMES:
        text = (environments.PINS / f"{name}.txt").read_text("utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert torch in lines, name
        assert all(line.count("==") == 1 for line in lines), name
