"""Atomic writes, and unreadable files reported in one sentence."""
