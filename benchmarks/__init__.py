"""Speed, as ratios within one run; results as JSON with commit and machine."""
