"""How Fabric runs a training of several processes; imported by those only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import nn

# while the first worker evaluates on test the others wait; a lost one is noticed by other means
TIMEOUT = timedelta(days=7)


class SummedGradients(DDPStrategy):
    """One process per device as in DDP, with gradients that `Workers` sums.

    torch's own wrapper takes the mean over the workers, needs a gradient of every parameter from
    each of them, and knows nothing of vectors that the loss reads outside `forward`.
    """

    def __init__(self) -> None:
        super().__init__(cluster_environment=TorchElasticEnvironment(), timeout=TIMEOUT)

    def setup_module(self, module: nn.Module) -> Any:
        return module
