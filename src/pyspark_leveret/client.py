"""Ask the broker over HTTP. Each request has a connection of its own.

If the broker does not answer or is busy, the request is sent again for up to `retry_s`, so that a
restart of the broker does not end a query. If several nodes are given, each is asked in turn. A
refused request is an error at once.
"""

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from leveret.http_client.address import Address, parse_address
from leveret.http_client.connections import Connection
from leveret.http_client.errors import CallError, reason_without_address
from leveret.http_client.requests import RequestEncoder
from leveret.http_client.streamed_answer import StreamedAnswer
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import Options, Url

log = logging.getLogger(__name__)

ANSWER_S: Final = 120.0
CONNECT_S: Final = 10.0  # if there is another node to ask
PAUSE_S: Final = (0.1, 2.0)  # the first and the longest pause between two tries
BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401  # the login is wrong, or lacks a permission
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
BUSY: Final = 503
# There is no connection, or it broke before the answer was there.
LOST: Final = (CallError, OSError)


class Broker:
    """One broker, or the nodes of its cluster, as one query sees it."""

    def __init__(self, options: Options) -> None:
        self._urls = options.urls
        self._retry_s = options.retry_s
        self._vhost = quote(options.vhost, safe="")

    def path(self, kind: str, name: str, *rest: str) -> str:
        """Return the API path of a queue or stream, or of a resource below it."""
        return "/".join(["/api", kind, self._vhost, quote(name, safe=""), *rest])

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Send a request and return the decoded answer. Raise BrokerError."""
        with self.answer(method, path, body, **query) as answer:
            data = answer.body.read()
        return json.loads(data) if data else None

    @contextlib.contextmanager
    def answer(
        self, method: str, path: str, body: object = None, **query: object
    ) -> Iterator[StreamedAnswer]:
        """Send a request and yield its answer. While reading it, the connection may be lost."""
        connection, answer = self._answered(method, path, body, query)
        try:
            if answer.status >= 300:
                raise _refusal(answer)
            yield answer
        finally:
            connection.close()

    def _answered(
        self, method: str, path: str, body: object, query: dict[str, object]
    ) -> tuple[Connection, StreamedAnswer]:
        """Send a request, again if needed, and return the connection and the answer."""
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        sent = json.dumps(body).encode() if body is not None else None
        patience = Patience(self._retry_s)
        tries = 0
        while True:
            address = _address(self._urls[tries % len(self._urls)])
            request = RequestEncoder(address).encode(method, target, sent)
            found = self._try(address, request)
            if not isinstance(found, BrokerError):
                return found
            tries += 1
            if tries % len(self._urls):
                log.warning("%s; asking another node", found)
            else:
                patience.pause(found)

    def _try(
        self, address: Address, request: bytes
    ) -> tuple[Connection, StreamedAnswer] | BrokerError:
        """Send a request once. Return a fault if the node does not answer, or is busy."""
        try:
            connection = Connection(address, CONNECT_S if len(self._urls) > 1 else ANSWER_S)
        except CallError as lost:
            return _silence(lost, address)
        try:
            answer = connection.ask_streamed([request], ANSWER_S)
            if answer.status != BUSY:
                return connection, answer
            fault = _refusal(answer)
        except CallError as lost:
            fault = _silence(lost, address)
        connection.close()
        return fault


def _silence(lost: CallError, address: Address) -> BrokerError:
    reason = reason_without_address(lost, address.shown)
    return BrokerError(f"the broker at {address.shown} does not answer: {reason}")


def _address(url: Url) -> Address:
    """Return a new address: Spark pickles a `Broker`, and TLS settings cannot be pickled."""
    address = parse_address(url.shown)
    return replace(address, user=url.user, password=url.password)


class Patience:
    """Growing pauses between tries, until `retry_s` has passed."""

    def __init__(self, retry_s: float) -> None:
        self._until_s = time.monotonic() + retry_s
        self._pause_s = PAUSE_S[0]
        self._logged = ""

    def pause(self, fault: Exception) -> None:
        """Wait before the next try. Raise the fault if no time is left."""
        if time.monotonic() + self._pause_s > self._until_s:
            raise fault
        if (text := str(fault)) != self._logged:
            log.warning("%s; trying again", text)
            self._logged = text
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S[1])


def _refusal(answer: StreamedAnswer) -> BrokerError:
    data = answer.body.read()
    try:
        reason = json.loads(data)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = answer.reason
    is_login = answer.status == UNAUTHORIZED and answer.headers.get("www-authenticate")
    kind = LoginRefusedError if is_login else BrokerError
    return kind(f"the broker says {answer.status}: {reason}", answer.status)


def named(fault: BrokerError, options: Options, kind: str, name: str) -> BrokerError:
    """Return an error that names the missing or forbidden stream or queue."""
    where = f"in vhost '{options.vhost}' at {options.url.shown}"
    if fault.status == NOT_FOUND:
        return BrokerError(f"there is no {kind} '{name}' {where}", NOT_FOUND)
    if fault.status == UNAUTHORIZED and not isinstance(fault, LoginRefusedError):
        text = f"the user '{options.url.user}' may not read the {kind} '{name}' {where}"
        return BrokerError(f"{text}, or there is no such vhost", UNAUTHORIZED)
    return fault
