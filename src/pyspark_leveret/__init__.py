"""Messages as tables of Spark: `spark.read.format("leveret")`. See docs/spark.md.

Spark finds the package by its name and needs no registration. Nothing is connected to anything
until a query is planned: objects of this package are pickled and sent to executors.
"""

from pyspark_leveret.source import DefaultSource

__all__ = ["DefaultSource"]
