"""`leveret pipeline`: flows of the data pipeline on Spark."""
