"""Where divided work runs: in this process, or on a Ray cluster. Never what it gives."""
