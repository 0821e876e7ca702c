"""What an export refuses, and what it leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linrec.backbones.state import state_of, tensors_of
from linrec.export import check, tracing
from linrec.export.folder import export_onnx
from linrec.export.graphs import asking, bake_features, newest
from linrec.types import InputError
from tests.cli.conftest import Command, Refused, linrec, refused
from tests.contracts.cases import hidden, history, model, sequences
from tests.export.cases import run_of

__all__ = ["linrec", "refused"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path / "run", "sasrec", "softmax", layers=1)


def test_without_onnx_it_says_what_to_install(
    run: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr(tracing, "find_spec", lambda name: None if name == "onnxscript" else name)
    message = refused("export", run, "--out", run.with_name("out"))
    assert "needs onnxscript; install it with pip install 'linrec[onnx]'" in message


def test_a_folder_of_something_else_stays(run: Path, refused: Refused) -> None:
    out = run.with_name("out")
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    assert "was not made by linrec" in refused("export", run, "--out", out, "--overwrite")
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_more_than_all_items_cannot_be_ranked(run: Path, refused: Refused) -> None:
    assert "must be from 1 to 16, the number of items" in refused(
        "export", run, "--out", run.with_name("out"), "--top-k", 99
    )


@pytest.mark.slow
def test_the_command_says_what_it_wrote_and_why_there_is_no_step(
    run: Path, linrec: Command
) -> None:
    out = run.with_name("out")
    result = linrec("export", run, "--out", out)
    assert result.code == 0
    assert "no step.onnx: softmax attention keeps no state" in result.out
    assert {path.name for path in out.iterdir()} == {"model.onnx", "items.json", "export.json"}
    again = linrec("export", run, "--out", out)
    assert again.code == 2
    assert "add --overwrite to replace it" in again.err


@pytest.mark.slow
def test_what_differs_from_torch_is_not_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "TOLERANCE", -1.0)
    with pytest.raises(InputError, match=r"model\.onnx gives scores that differ from torch's by"):
        export_onnx(run, run.with_name("out"))
    assert [path.name for path in run.parent.iterdir()] == ["run"]


@pytest.mark.parametrize("backbone", ["fdsa", "core"])
def test_a_state_is_its_tensors(backbone: str) -> None:
    state = model(backbone, "efficient").start_closed(2)
    tensors = tensors_of(state)
    assert "state.0.layers.1.peak" in tensors
    again = tensors_of(state_of(state, {name: part + 1 for name, part in tensors.items()}))
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], part + 1) for name, part in tensors.items())


@pytest.mark.parametrize("backbone", ["sasrecf", "fdsa"])
def test_baked_features_say_the_same(backbone: str) -> None:
    made = model(backbone, "linrec")
    items = history(9)
    before = hidden(made, items)
    assert torch.equal(hidden(bake_features(made), items), before)


@pytest.mark.parametrize("longest", [None, 3, 9])
def test_histories_are_read_as_the_backbone_reads_them(longest: int | None) -> None:
    made = model("bert4rec", "softmax", max_length=longest)
    rows = sequences(history(5), history(2), history(3))
    found = asking(newest(torch.from_numpy(rows.padded()), longest), made.mask_token or 0)
    expected = made.read(rows).items
    assert torch.equal(found[:, : expected.shape[1]], expected)
    assert not found[:, expected.shape[1] :].any()
