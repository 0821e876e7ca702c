"""Sparse matrices of items x items as the named tensors of a model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

PARTS = ("starts", "columns", "values")


def to_tensors(name: str, matrix: csr_array) -> dict[str, Tensor]:
    """Row by row: where each starts, the columns of its entries and their values."""
    arrays = (
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data,
    )
    return {
        f"{name}_{part}": torch.from_numpy(np.ascontiguousarray(array))
        for part, array in zip(PARTS, arrays, strict=True)
    }


def from_tensors(name: str, tensors: Mapping[str, Tensor], n_items: int) -> csr_array:
    starts, columns, values = (tensors[f"{name}_{part}"].numpy() for part in PARTS)
    shape = (n_items + 1, n_items + 1)
    return csr_array((values, columns, starts), shape=shape)


def shapes(name: str, n_items: int) -> dict[str, tuple[int, ...] | None]:
    return {f"{name}_starts": (n_items + 2,), f"{name}_columns": None, f"{name}_values": None}


def check(name: str, tensors: Mapping[str, Tensor], n_items: int) -> None:
    """Raise ValueError where SciPy, which trusts them, would read outside of the arrays."""
    starts, columns, values = (tensors[f"{name}_{part}"] for part in PARTS)
    if starts.dtype != torch.int64 or columns.dtype != torch.int32:
        raise ValueError(f"the rows or columns of {name} are not whole numbers")
    if values.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"the values of {name} are not floating-point numbers")
    if columns.dim() != 1 or columns.shape != values.shape:
        raise ValueError(f"{name} has not as many values as columns")
    if starts[0] != 0 or starts[-1] != len(columns) or (starts.diff() < 0).any():
        raise ValueError(f"the rows of {name} overlap or leave entries out")
    if columns.min() < 0 or columns.max() > n_items:
        raise ValueError(f"{name} names items that do not exist")
