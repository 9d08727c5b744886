"""`leveret pipeline`: the data pipeline on Spark."""
