"""Store the position of a query as a cursor of its streams, so that the broker shows its lag.

A cursor is for people and alerts: the checkpoint of a query, or the log of the Delta table that it
writes, decides where it continues. A cursor that cannot be stored is a warning,
and the query goes on.
"""

import logging
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from pyspark_leveret.client import Broker
from pyspark_leveret.errors import BrokerError
from pyspark_leveret.options import Options

log = logging.getLogger(__name__)

RETRY_S: Final = 2.0


class Cursor:
    """A cursor under one name in each stream of a query."""

    def __init__(self, options: Options, name: str) -> None:
        self._broker = Broker(replace(options, retry_s=min(options.retry_s, RETRY_S)))
        self._name = name
        self._stored: dict[str, int] = {}

    def move(self, position: dict[str, int]) -> None:
        """Store the next offset of each stream, if it has changed."""
        for stream, offset in position.items():
            if self._stored.get(stream) != offset:
                path = self._broker.path("streams", stream, "cursors", quote(self._name, safe=""))
                try:
                    self._broker.ask("PUT", path, {"offset": offset})
                except BrokerError as error:
                    log.warning("the cursor '%s' could not be stored: %s", self._name, error)
                    if not error.status:
                        continue  # no answer: try again with the next batch
                self._stored[stream] = offset
