"""What nobody has run on a GPU yet is at least run on the CPU, but for the clock of a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import gpu, gpu_roofline
from linrec import ops

FORMS = {"linrec", "chunked", "flash", "fla"}


@pytest.fixture
def fla(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """A library with the function and the layout of the real one; the shapes it was given."""
    given: list[torch.Size] = []

    def chunk_linear_attn(q: Tensor, k: Tensor, v: Tensor, *, normalize: bool) -> Any:
        assert not normalize
        given.append(q.shape)
        return torch.einsum("bthd,bshd,bshe->bthe", q, k, v), None

    for name in ("fla", "fla.ops", "fla.ops.linear_attn"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["fla.ops.linear_attn"].chunk_linear_attn = chunk_linear_attn  # type: ignore[attr-defined]
    monkeypatch.setattr(gpu, "find_spec", lambda _: True)
    return given


def test_every_form_computes_outputs_and_all_gradients(
    fla: list[torch.Size], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[list[torch.Size]] = []
    usual = torch.autograd.grad

    def recorded(out: Tensor, inputs: tuple[Tensor, ...], dout: Tensor) -> Any:
        assert out.shape == dout.shape == (2, gpu.HEADS, 32, 16)
        wanted.append([x.shape for x in usual(out, inputs, dout)])
        return ()

    monkeypatch.setattr(torch.autograd, "grad", recorded)
    forms = gpu.forms(32, 16, 64, torch.float32, device="cpu")
    assert forms.keys() == FORMS
    for form in forms.values():
        form()
    inputs = [torch.Size((2, gpu.HEADS, 32, 16))] * 3
    decay = torch.Size((gpu.HEADS,))
    assert wanted == [[*inputs, decay], [*inputs, decay], inputs, inputs]
    assert fla == [(2, 32, gpu.HEADS, 16)]


@pytest.mark.usefixtures("fla")
def test_a_row_says_in_which_form_ours_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 with wide heads takes the torch form on a GPU, and a table must not hide it."""
    monkeypatch.setattr(gpu, "milliseconds", lambda _: 0.12345)
    row = gpu.row(32, 16, 64, torch.float32, device="cpu")
    assert row == {
        "length": 32, "width": 16, "kernel": not ops.kernels().startswith("off"),
        **{f"{name}_ms": 0.1235 for name in FORMS},
    }  # fmt: skip
    with ops.without_kernels():
        assert not gpu.row(32, 16, 64, torch.float32, device="cpu")["kernel"]


def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path / "gpu.json")])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "gpu.json").exists()


def test_the_page_says_that_nobody_has_run_it_until_somebody_has() -> None:
    text = gpu_roofline.PAGE.read_text("utf-8")
    assert ("nobody has run `benchmarks/gpu.py` yet" in text) == (not gpu.OUT.exists())
