"""Programs for working on Leveret; none of them is installed."""
