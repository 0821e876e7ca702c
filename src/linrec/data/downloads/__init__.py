"""Public datasets from their official sources, and the demo's made-up one."""
