"""Check logins and names once, in the driver, before any task starts.

Each task opens connections of its own, and Spark repeats failed tasks. Without these checks, a
wrong password would be tried once for each task and attempt.
"""

from typing import Final

from pyspark_leveret.client import FORBIDDEN, NOT_FOUND, UNAUTHORIZED, Broker, named
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import Options

_ANY: Final = "any"  # some name: 404 is an answer to a login too


def require_login(options: Options) -> None:
    """Raise BrokerError unless the broker answers and accepts the login."""
    _ask(options, "stream", _ANY)


def require_named(options: Options, kind: str, name: str) -> None:
    """Raise BrokerError if the login is refused, or there is no such queue, stream or exchange."""
    fault = _ask(options, kind, name)
    if fault is not None and fault.status == NOT_FOUND:
        raise named(fault, options, kind, name) from fault


def require_target(options: Options) -> None:
    """Raise BrokerError if the login is refused, or a mandatory target of a write is missing."""
    kind, name = _target(options)
    if name and options.is_mandatory:
        require_named(options, kind, name)
    else:
        require_login(options)


def _ask(options: Options, kind: str, name: str) -> BrokerError | None:
    """Ask for an object of the broker. Return a refusal that is not about the login."""
    broker = Broker(options)
    try:
        broker.ask("GET", broker.path(f"{kind}s", name))
    except LoginRefusedError:
        raise
    except BrokerError as fault:
        # A user may have the permission to write without the permission to read.
        if fault.status not in (NOT_FOUND, UNAUTHORIZED, FORBIDDEN):
            raise
        return fault
    return None


def _target(options: Options) -> tuple[str, str | None]:
    if options.exchange is not None:
        return "exchange", options.exchange
    if options.stream is not None:
        return "stream", options.stream
    return "queue", options.queue
