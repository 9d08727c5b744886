"""What goes wrong in Spark, as one sentence.

Spark wraps an error of our own in a Python traceback, and that in a Java one. People want the
last line of it.
"""

import re
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pyspark_leveret.errors import BrokerError, DataLostError, OptionError

# The line of a traceback that names an error of the data source, or of the jobs service.
_OURS: Final = re.compile(
    r"(?:pyspark_leveret|leveret\.http_client|leveret\.jobs\.client)\.errors\.\w+: (.+)"
)
# What Spark itself says: its class of errors and a sentence.
_SPARK: Final = re.compile(r"\[[A-Z_.0-9]+\] .+")
_NO_REASON: Final = "[FAILED_READ_FILE.NO_HINT]"  # the line that says why is another one
_SENTENCE_MAX: Final = 500
FAULTS: Final = (PySparkException, Py4JError, BrokerError, DataLostError, OptionError)


def sentence(fault: Exception) -> str:
    """What an error of Spark, or of the data source, says."""
    text = str(fault)
    ours = _OURS.findall(text)
    theirs = sorted(_SPARK.findall(text), key=lambda found: found.startswith(_NO_REASON))
    found = ours[-1] if ours else theirs[0] if theirs else text.strip().partition("\n")[0]
    return str(found).strip()[:_SENTENCE_MAX]
