"""Set the number of shuffle partitions of a report to suit the cores.

A report is small: with Spark's default of 200 partitions most tasks would have no rows. A number
that the user has set stays.
"""

from typing import Final

from pyspark.sql import SparkSession

_SETTING: Final = "spark.sql.shuffle.partitions"
_DEFAULT: Final = "200"
_MIN: Final = 8
_PER_CORE: Final = 3


def set_shuffle_partitions(spark: SparkSession) -> None:
    if spark.conf.get(_SETTING) == _DEFAULT:
        count = max(_MIN, _PER_CORE * spark.sparkContext.defaultParallelism)
        spark.conf.set(_SETTING, str(count))
