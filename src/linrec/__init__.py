"""linrec: recommendations from whole long histories, with linear attention."""
