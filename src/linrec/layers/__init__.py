"""The parts backbones are made of."""

from linrec.layers.attention import MultiHeadAttention
from linrec.layers.block import Block, FeedForward
from linrec.layers.dropout import Dropout
from linrec.layers.features import FeatureEmbedding, FieldAttention
from linrec.layers.head_norm import HeadNorm
from linrec.layers.pooling import WeightedMean
from linrec.layers.repeats import RepeatHead
from linrec.layers.stack import Stack, StackShape, StackState
from linrec.layers.vectors import VectorProjection

__all__ = [
    "Block",
    "Dropout",
    "FeatureEmbedding",
    "FeedForward",
    "FieldAttention",
    "HeadNorm",
    "MultiHeadAttention",
    "RepeatHead",
    "Stack",
    "StackShape",
    "StackState",
    "VectorProjection",
    "WeightedMean",
]
