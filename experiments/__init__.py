"""What linrec reaches on real data, on the public API only; results/ holds the outcomes."""
