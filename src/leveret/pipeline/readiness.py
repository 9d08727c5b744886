"""Looks before Spark is started, which takes ten seconds: is there what a command needs?

Each function raises an error with one sentence. None of them is proof: what goes away later is told
later. Spark itself would say the same with a page of Java, or try for minutes.
"""

import os
from pathlib import Path
from typing import Final

from leveret.errors import ConfigError
from leveret.pipeline.site import Site
from pyspark_leveret.client import NOT_FOUND, UNAUTHORIZED, Broker
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import parse
from pyspark_leveret.positions import Streams

FORBIDDEN: Final = 403


def require_broker(site: Site) -> None:
    """The broker answers, and takes user and password. BrokerError, OptionError."""
    broker = _broker(site)
    try:  # any stream: that there is none is an answer too, and needs no tag of the user
        broker.ask("GET", broker.path("streams", "any"))
    except LoginRefusedError:
        raise
    except BrokerError as fault:  # nor may every user read every stream
        if fault.status not in (UNAUTHORIZED, FORBIDDEN, NOT_FOUND):
            raise


def require_stream(site: Site, name: str) -> None:
    """There is such a stream, or super stream. BrokerError, OptionError."""
    Streams(parse(site.options(stream=name, retrySeconds=0))).bounds()


def require_queue(site: Site, name: str) -> None:
    """There is such a queue. BrokerError, OptionError."""
    _require(site, "queues", "queue", name)


def require_exchange(site: Site, name: str) -> None:
    """There is such an exchange. BrokerError, OptionError."""
    _require(site, "exchanges", "exchange", name)


def _require(site: Site, kind: str, word: str, name: str) -> None:
    broker = _broker(site)
    try:
        broker.ask("GET", broker.path(kind, name))
    except LoginRefusedError:
        raise
    except BrokerError as fault:
        if fault.status == NOT_FOUND:
            text = f"there is no {word} '{name}' in vhost '{site.vhost}'"
            raise BrokerError(text, NOT_FOUND) from fault
        if fault.status not in (UNAUTHORIZED, FORBIDDEN):  # who may write may not be let look
            raise


def _broker(site: Site) -> Broker:
    """A broker that is asked once: somebody is waiting at a terminal."""
    return Broker(parse(site.options(retrySeconds=0)))


def require_writable(folder: Path) -> None:
    """A folder is there and can be written to, or can be made. ConfigError."""
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise ConfigError(f"{folder} cannot be the lake: {place} is not a directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} cannot be the lake: {place} cannot be written to")
