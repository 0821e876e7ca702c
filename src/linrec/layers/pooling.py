"""One weight per position, and the weighted mean over positions."""

from __future__ import annotations

from torch import Tensor, nn

from linrec import ops
from linrec.ops import MeanState


class WeightedMean(nn.Module):
    """Weighs vectors by a softmax over positions, for every prefix at once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(width, 1, bias=False)  # a softmax ignores a constant

    def forward(
        self, x: Tensor, hidden: Tensor, keep: Tensor, state: MeanState | None = None
    ) -> tuple[Tensor, MeanState]:
        """x: [B, N, width], weighted by a score of `hidden` at each position -> same shape."""
        return ops.running_mean(x, self.weigh(hidden)[..., 0], keep=keep, state=state)

    def start(self, users: int) -> MeanState:
        weight = self.weigh.weight
        return ops.start_mean(users, weight.shape[1], dtype=weight.dtype, device=weight.device)
