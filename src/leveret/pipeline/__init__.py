"""The data pipeline: archive, analyse, audit and replay messages with Spark. See docs/spark.md."""
