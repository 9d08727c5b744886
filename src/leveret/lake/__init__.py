"""The lake on disk: its directories, and which files and offsets are committed. No Spark."""
