"""The learning rate over a training: a linear warm-up, then constant or a linear decay to zero."""

from __future__ import annotations

from dataclasses import dataclass

from linrec.runs.config import TrainingConfig

# of all planned steps: a recipe for a million events must leave time to learn from a thousand
LONGEST_WARMUP = 0.25


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pure function of the place in the training, so that a resumed run repeats it exactly."""

    epochs: int  # planned; a run that stops early has seen the beginning of the schedule
    warmup: int  # steps until the full rate is reached, unless that is much of a short training
    decays: bool = True

    @classmethod
    def of(cls, training: TrainingConfig) -> Schedule:
        return cls(training.epochs, training.warmup, training.schedule == "linear")

    def share(self, epoch: int, step: int, steps: int) -> float:
        """What the learning rate is multiplied by, in step `step` of `steps` of an epoch.

        Epochs and steps count from 0. Epochs need not have equally many steps: the decay goes by
        the share of the training that is done.
        """
        warmup = min(self.warmup, LONGEST_WARMUP * steps * self.epochs)
        rising = (epoch * steps + step + 1) / warmup if warmup else 1.0
        done = (epoch + step / steps) / self.epochs
        falling = (1.0 - done) / (1.0 - warmup / (steps * self.epochs)) if self.decays else 1.0
        return max(0.0, min(1.0, rising, falling))
