"""Checks that run before Spark starts, which takes ten seconds.

Each function raises an error of one sentence if something that a command needs is missing. Without
these checks Spark would print a Java stack trace, or retry for minutes.
"""

import os
from pathlib import Path

from leveret.errors import ConfigError
from leveret.pipeline.environment import Environment
from pyspark_leveret.options import Options, parse_options
from pyspark_leveret.positions import Streams
from pyspark_leveret.targets import require_login, require_named


def require_broker(environment: Environment) -> None:
    """Raise BrokerError or OptionError unless the broker answers and accepts the login."""
    require_login(_options(environment))


def require_stream(environment: Environment, name: str) -> None:
    """Raise BrokerError or OptionError if there is no such stream or super stream."""
    Streams(_options(environment, stream=name)).bounds()


def require_queue(environment: Environment, name: str) -> None:
    """Raise BrokerError or OptionError if there is no such queue."""
    require_named(_options(environment), "queue", name)


def require_exchange(environment: Environment, name: str) -> None:
    """Raise BrokerError or OptionError if there is no such exchange."""
    require_named(_options(environment), "exchange", name)


def _options(environment: Environment, **more: str) -> Options:
    """Return options of a client that does not retry: a user is waiting at a terminal."""
    return parse_options(environment.options(retrySeconds=0, **more))


def require_writable(folder: Path) -> None:
    """Raise ConfigError unless the folder can be written to, or created."""
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise ConfigError(f"{folder} cannot be the lake: {place} is not a directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} cannot be the lake: {place} cannot be written to")
