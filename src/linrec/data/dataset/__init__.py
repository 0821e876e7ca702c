"""The prepared dataset: sequences in memory-mapped arrays, splits and batches."""
