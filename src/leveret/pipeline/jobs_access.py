"""Access of flows to the jobs service over HTTP, with a given token or one from the broker.

The broker gives a logged-in user a token for ten minutes. It is renewed before it expires.
"""

import time
from typing import Final
from urllib.parse import urlsplit

from leveret.jobs.client.client import Client
from leveret.pipeline.environment import Environment
from pyspark_leveret.client import Broker
from pyspark_leveret.options import parse_options

TOKEN_S: Final = 300.0  # half of the lifetime of a token


class JobsAccess:
    """Makes clients of one service. Can be pickled until `client` is called."""

    def __init__(self, environment: Environment, token: str | None, namespace: str) -> None:
        self._environment = environment
        self._token = token
        self._namespace = namespace
        self._client: Client | None = None
        self._token_time_s = 0.0

    def client(self) -> Client:
        """Return a client whose token is valid for five minutes or more."""
        now_s = time.monotonic()
        is_old = self._token is None and now_s - self._token_time_s > TOKEN_S
        if self._client is None or is_old:
            self.close()
            token, self._token_time_s = self._token or _request_token(self._environment), now_s
            parts = urlsplit(self._environment.url)
            url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            self._client = Client(url, token=token, namespace=self._namespace)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None


def _request_token(environment: Environment) -> str:
    """Return a token for the logged-in user."""
    broker = Broker(parse_options(environment.options()))
    return str(broker.ask("POST", "/api/jobs/token")["token"])
