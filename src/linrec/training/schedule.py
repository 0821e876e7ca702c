"""The learning rate over a training: a linear warm-up, then constant or a linear decay to zero."""

from __future__ import annotations

from dataclasses import dataclass

from linrec.runs.config import TrainingConfig


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pure function of the place in the training, so that a resumed run repeats it exactly."""

    epochs: int  # planned; a run that stops early has seen the beginning of the schedule
    warmup: int  # steps until the full rate is reached
    decays: bool = True

    @classmethod
    def of(cls, training: TrainingConfig) -> Schedule:
        return cls(training.epochs, training.warmup, training.schedule == "linear")

    def share(self, epoch: int, step: int, steps: int) -> float:
        """What the learning rate is multiplied by, in step `step` of `steps` of an epoch.

        Epochs and steps count from 0. Epochs need not have equally many steps: the decay goes by
        the share of the training that is done.
        """
        rising = (epoch * steps + step + 1) / self.warmup if self.warmup else 1.0
        falling = self._falling(epoch + step / steps, steps) if self.decays else 1.0
        return max(0.0, min(1.0, rising, falling))

    def _falling(self, done: float, steps: int) -> float:
        """done: epochs so far."""
        warm = self.warmup / (steps * self.epochs)
        return (1.0 - done / self.epochs) / (1.0 - warm) if warm < 1.0 else 1.0
