"""How flows get at the jobs service over HTTP: by the token that was given, or by one asked for.

A login is good for a token of ten minutes, so one that was asked for is asked for anew in time.
"""

import time
from typing import Final
from urllib.parse import urlsplit

from leveret.jobs.client.client import Client
from leveret.pipeline.site import Site
from pyspark_leveret.client import Broker
from pyspark_leveret.options import parse

TOKEN_S: Final = 300.0  # half of what the service gives


class JobsAccess:
    """Makes clients of one service; may be sent to other processes before its first use."""

    def __init__(self, site: Site, token: str | None, namespace: str) -> None:
        self._site = site
        self._token = token
        self._namespace = namespace
        self._client: Client | None = None
        self._asked_s = 0.0

    def client(self) -> Client:
        """A client whose token is good for some minutes at least."""
        now_s = time.monotonic()
        is_old = self._token is None and now_s - self._asked_s > TOKEN_S
        if self._client is None or is_old:
            self.close()
            token, self._asked_s = self._token or _asked(self._site), now_s
            parts = urlsplit(self._site.url)
            url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            self._client = Client(url, token=token, namespace=self._namespace)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None


def _asked(site: Site) -> str:
    """A token for who is logged in."""
    broker = Broker(parse(site.options()))
    return str(broker.ask("POST", "/api/jobs/token")["token"])
