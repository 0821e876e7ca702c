"""These tests need Triton on this device: a GPU, or its interpreter, which has to be chosen before
Triton is imported. tests/ops/test_triton.py runs them in processes that did."""

from linrec.ops import triton
from tests.ops.interpreted.cases import DEVICE

collect_ignore_glob = [] if triton.why_not(DEVICE) is None else ["test_*.py"]
