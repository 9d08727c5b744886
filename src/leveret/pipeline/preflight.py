"""Checks that run before Spark starts, which takes ten seconds.

Each function raises an error of one sentence if something that a command needs is missing. Without
these checks Spark would print a Java stack trace, or retry for minutes.
"""

import os
from pathlib import Path

from leveret.errors import ConfigError
from leveret.pipeline.environment import Environment
from pyspark_leveret.client import NOT_FOUND, UNAUTHORIZED, Broker
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import parse_options
from pyspark_leveret.positions import Streams
from pyspark_leveret.targets import FORBIDDEN


def require_broker(environment: Environment) -> None:
    """Raise BrokerError or OptionError unless the broker answers and accepts the login."""
    broker = _broker(environment)
    try:  # any name: 404 is an answer too, and the user needs no tag for it
        broker.ask("GET", broker.path("streams", "any"))
    except LoginRefusedError:
        raise
    except BrokerError as error:  # the user need not have access to this stream
        if error.status not in (UNAUTHORIZED, FORBIDDEN, NOT_FOUND):
            raise


def require_stream(environment: Environment, name: str) -> None:
    """Raise BrokerError or OptionError if there is no such stream or super stream."""
    Streams(parse_options(environment.options(stream=name, retrySeconds=0))).bounds()


def require_queue(environment: Environment, name: str) -> None:
    """Raise BrokerError or OptionError if there is no such queue."""
    _require(environment, "queues", "queue", name)


def require_exchange(environment: Environment, name: str) -> None:
    """Raise BrokerError or OptionError if there is no such exchange."""
    _require(environment, "exchanges", "exchange", name)


def _require(environment: Environment, kind: str, word: str, name: str) -> None:
    broker = _broker(environment)
    try:
        broker.ask("GET", broker.path(kind, name))
    except LoginRefusedError:
        raise
    except BrokerError as error:
        if error.status == NOT_FOUND:
            text = f"there is no {word} '{name}' in vhost '{environment.vhost}'"
            raise BrokerError(text, NOT_FOUND) from error
        if error.status not in (UNAUTHORIZED, FORBIDDEN):  # write access without read access
            raise


def _broker(environment: Environment) -> Broker:
    """Return a client that does not retry: a user is waiting at a terminal."""
    return Broker(parse_options(environment.options(retrySeconds=0)))


def require_writable(folder: Path) -> None:
    """Raise ConfigError unless the folder can be written to, or created."""
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise ConfigError(f"{folder} cannot be the lake: {place} is not a directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} cannot be the lake: {place} cannot be written to")
