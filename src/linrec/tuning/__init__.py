"""A search for settings: trials of short trainings, judged on validation alone."""
