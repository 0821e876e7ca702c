"""A run: its settings, and the folder that holds all that a training leaves."""
