"""Check the login and the target of a write once, in the driver, before any task starts.

Each task opens connections of its own, and Spark repeats failed tasks. Without this check, a wrong
password would be tried once for each task and attempt.
"""

from typing import Final

from pyspark_leveret.client import NOT_FOUND, UNAUTHORIZED, Broker, named
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import Options

FORBIDDEN: Final = 403
_ANY: Final = "any"  # some name: 404 is an answer to a login too


def require_target(options: Options) -> None:
    """Raise BrokerError if the login is refused, or there is no such queue, stream or exchange."""
    kind, name = _target(options)
    broker = Broker(options)
    try:
        broker.ask("GET", broker.path(f"{kind}s", name or _ANY))
    except LoginRefusedError:
        raise
    except BrokerError as fault:
        if fault.status == NOT_FOUND and name and options.is_mandatory:
            raise named(fault, options, kind, name) from fault
        # A user may have the permission to write without the permission to read.
        if fault.status not in (NOT_FOUND, UNAUTHORIZED, FORBIDDEN):
            raise


def _target(options: Options) -> tuple[str, str | None]:
    if options.exchange is not None:
        return "exchange", options.exchange
    if options.stream is not None:
        return "stream", options.stream
    return "queue", options.queue
