"""Work for all users of a dataset, divided into parts that any engine runs."""
