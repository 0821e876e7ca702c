"""A run: its settings, and the folder that holds everything a training leaves."""
