"""One training on the machines of a Ray cluster."""
