"""LinRec in which each head forgets at its own pace: event m counts g^(t-m) at t."""

from __future__ import annotations

from typing import ClassVar

from linrec.ops.linrec import LinRec


class LinRecDecay(LinRec):
    """With log g = 0 this is the paper's mechanism; a small g sees the last few events alone."""

    takes_decay: ClassVar[bool] = True
