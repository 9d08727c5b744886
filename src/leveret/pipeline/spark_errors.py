"""Reduce an error of Spark to one sentence.

Spark wraps our own error in a Python traceback, and that in a Java stack trace. The useful part is
the last line of the Python traceback.
"""

import re
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pyspark_leveret.errors import BrokerError, DataLostError, OptionError

# The line of a traceback with an error of the data source or of leveret.
_OURS: Final = re.compile(r"(?:pyspark_leveret\.errors|leveret(?:\.\w+)*\.errors)\.\w+: (.+)")
# Spark's own error: its error class and a sentence.
_SPARK: Final = re.compile(r"\[[A-Z_.0-9]+\] .+")
_NO_REASON: Final = "[FAILED_READ_FILE.NO_HINT]"  # another line gives the reason
# A fault of the disk. Spark's sentence only says that a task failed; its Java stack trace has this.
_DISK: Final = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system")
_SENTENCE_MAX: Final = 500
SPARK_ERRORS: Final = (PySparkException, Py4JError, BrokerError, DataLostError, OptionError)


def error_sentence(error: Exception) -> str:
    """Return the message of an error of Spark, of the data source or of the disk."""
    text = str(error)
    if disk := _DISK.search(f"{text}\n{getattr(error, '_stackTrace', '')}"):
        return f"{disk[0]}; a file of the lake or of Spark could not be written"
    ours = _OURS.findall(text)
    theirs = sorted(_SPARK.findall(text), key=lambda found: found.startswith(_NO_REASON))
    found = ours[-1] if ours else theirs[0] if theirs else text.strip().partition("\n")[0]
    return str(found).strip()[:_SENTENCE_MAX]
