"""Helpers of the insight tests: HTTP requests, AMQP channels, whole searches."""

from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from leveret.testing.broker import RunningBroker
from tests.http import asking


def ask(
    server: RunningBroker, method: str, path: str, body: object = None, *, login: bool = True
) -> tuple[int, Any]:
    """Return status and decoded body of one request to the API."""
    return asking.ask(server, method, "/api" + path, body, login=asking.GUEST if login else None)


def opened(server: RunningBroker) -> BlockingChannel:
    return pika.BlockingConnection(pika.URLParameters(server.url)).channel()


def properties(**fields: Any) -> pika.BasicProperties:
    return pika.BasicProperties(**fields)


def search_all(server: RunningBroker, path: str, body: dict[str, object]) -> list[dict[str, Any]]:
    """Return the messages of all pages of a search."""
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        status, page = ask(server, "POST", path, {**body, "cursor": cursor})
        assert status == 200, page
        items += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            return items
