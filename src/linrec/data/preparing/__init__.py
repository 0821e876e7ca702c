"""From an event log to a dataset: filters, ids, item features."""
