"""HTTP client of the broker, with a new connection for each request.

A request is retried for `retry_s` while the broker is unreachable or busy, so a restart of the
broker does not end a query. A refusal is an error at once.
"""

import contextlib
import http.client
import json
import logging
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode

from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import Options

log = logging.getLogger(__name__)

ANSWER_S: Final = 120.0
PAUSE_S: Final = (0.1, 2.0)  # first pause between tries, and longest
UNAUTHORIZED: Final = 401  # the login or the request is refused
NOT_FOUND: Final = 404
BUSY: Final = 503
# No connection, or a connection that broke before the answer came.
LOST: Final = (OSError, http.client.HTTPException)


class Broker:
    """A client of one broker for one query."""

    def __init__(self, options: Options) -> None:
        self._url = options.url
        self._retry_s = options.retry_s
        self._vhost = quote(options.vhost, safe="")

    def path(self, kind: str, name: str, *rest: str) -> str:
        """Return the path of a queue or stream, or of a resource below it."""
        return "/".join(["/api", kind, self._vhost, quote(name, safe=""), *rest])

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Return the decoded answer; raise BrokerError."""
        with self.answer(method, path, body, **query) as response:
            data = response.read()
        return json.loads(data) if data else None

    @contextlib.contextmanager
    def answer(
        self, method: str, path: str, body: object = None, **query: object
    ) -> Iterator[http.client.HTTPResponse]:
        """Open an answer to read. The caller handles a connection that breaks meanwhile."""
        connection, response = self._answered(method, path, body, query)
        try:
            if response.status >= 300:
                raise _refusal(response)
            yield response
        finally:
            connection.close()

    def _answered(
        self, method: str, path: str, body: object, query: dict[str, object]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request until there is an answer."""
        waiting = Patience(self._retry_s)
        while True:
            connection = self._connection()
            try:
                response = self._send(connection, method, path, body, query)
                if response.status != BUSY:
                    return connection, response
                fault: Exception = _refusal(response)
            except LOST as lost:
                fault = BrokerError(f"the broker at {self._url.shown} does not answer: {lost}")
            connection.close()
            waiting.pause(fault)

    def _connection(self) -> http.client.HTTPConnection:
        url = self._url
        if url.is_tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                url.host, url.port, timeout=ANSWER_S, context=context
            )
        return http.client.HTTPConnection(url.host, url.port, timeout=ANSWER_S)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object,
        query: dict[str, object],
    ) -> http.client.HTTPResponse:
        login = b64encode(f"{self._url.user}:{self._url.password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}"}
        sent = json.dumps(body) if body is not None else None
        given = {name: value for name, value in query.items() if value is not None}
        connection.request(method, f"{path}?{urlencode(given)}" if given else path, sent, headers)
        return connection.getresponse()


class Patience:
    """Pauses between tries, which grow, until `retry_s` has passed."""

    def __init__(self, retry_s: float) -> None:
        self._until_s = time.monotonic() + retry_s
        self._pause_s = PAUSE_S[0]

    def pause(self, fault: Exception) -> None:
        """Sleep before the next try; raise the error if `retry_s` has passed."""
        if time.monotonic() + self._pause_s > self._until_s:
            raise fault
        log.warning("%s; trying again", fault)
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S[1])


def _refusal(response: http.client.HTTPResponse) -> BrokerError:
    data = response.read()
    try:
        reason = json.loads(data)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = response.reason
    is_login = response.status == UNAUTHORIZED and response.getheader("WWW-Authenticate")
    kind = LoginRefusedError if is_login else BrokerError
    return kind(f"the broker says {response.status}: {reason}", response.status)


def named(fault: BrokerError, options: Options, kind: str, name: str) -> BrokerError:
    """Return a refusal that names the missing or forbidden stream or queue."""
    where = f"in vhost '{options.vhost}' at {options.url.shown}"
    if fault.status == NOT_FOUND:
        return BrokerError(f"there is no {kind} '{name}' {where}", NOT_FOUND)
    if fault.status == UNAUTHORIZED and not isinstance(fault, LoginRefusedError):
        text = f"the user '{options.url.user}' may not read the {kind} '{name}' {where}"
        return BrokerError(f"{text}, or there is no such vhost", UNAUTHORIZED)
    return fault
