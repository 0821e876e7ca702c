"""Training losses: they take tensors, never models."""

from linrec.losses.full_softmax import full_softmax

__all__ = ["full_softmax"]
