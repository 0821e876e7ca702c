"""The paper's tables and figures, on the public API only; results/ holds the outcomes."""
