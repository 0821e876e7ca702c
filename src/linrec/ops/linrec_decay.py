"""LinRec in which each head forgets at its own pace: event m counts g^(t-m) at t."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from linrec.ops.linrec import LinRec
from linrec.types import InputError


class LinRecDecay(LinRec):
    """With log g = 0 this is the paper's mechanism; a small g looks at the last few events alone."""

    takes_decay: ClassVar[bool] = True

    def factors(self, q: Tensor, k: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        raise InputError(
            "linrec-decay weighs each pair of events by their distance, so its B' is no product of "
            "two factors; ask attention_matrix for B', or factors of linrec, its form without decay"
        )
