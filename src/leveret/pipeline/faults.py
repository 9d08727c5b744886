"""What goes wrong in Spark, as one sentence.

Spark wraps an error of our own in a Python traceback, and that in a Java one. People want the
last line of it.
"""

import re
from typing import Final

from pyspark.errors import PySparkException

from pyspark_leveret.errors import BrokerError, DataLost, OptionError

# The line of a traceback that names an error of the data source.
_OURS: Final = re.compile(r"pyspark_leveret\.errors\.\w+: (.+)")
_SENTENCE_MAX: Final = 500
FAULTS: Final = (PySparkException, BrokerError, DataLost, OptionError)


def sentence(fault: Exception) -> str:
    """What an error of Spark, or of the data source, says."""
    text = str(fault)
    ours = _OURS.findall(text)
    found = ours[-1] if ours else text.strip().partition("\n")[0]
    return str(found).strip()[:_SENTENCE_MAX]
