"""How many partitions a shuffle of a report has: as many as the cores can use.

A report is small: with Spark's 200, most of its time would be that of tasks without rows. What
somebody has chosen stays.
"""

from typing import Final

from pyspark.sql import SparkSession

_SETTING: Final = "spark.sql.shuffle.partitions"
_DEFAULT: Final = "200"
_MIN: Final = 8
_PER_CORE: Final = 3


def fit_shuffles(spark: SparkSession) -> None:
    if spark.conf.get(_SETTING) == _DEFAULT:
        count = max(_MIN, _PER_CORE * spark.sparkContext.defaultParallelism)
        spark.conf.set(_SETTING, str(count))
