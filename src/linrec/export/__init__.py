"""A trained model as files that need neither Python nor torch."""
