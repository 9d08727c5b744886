"""The data pipeline: jobs on Spark over what went through the broker. See docs/spark.md."""
