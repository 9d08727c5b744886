"""Streams and queues as Spark tables: `spark.read.format("leveret")`. See docs/spark.md.

Spark finds the package by its name and needs no registration. Objects of this package are pickled
and sent to executors, so they open no connection until a query is planned.
"""

from pyspark_leveret.source import DefaultSource

__all__ = ["DefaultSource"]
