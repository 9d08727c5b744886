"""Asks a broker over HTTP, and connects to it over AMQP, in few words."""

import http.client
import json
from base64 import b64encode
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from leveret.testing.broker import BrokerUrl

LOGIN = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}


def ask(
    url: BrokerUrl, method: str, path: str, body: object = None, *, login: bool = True
) -> tuple[int, Any]:
    """Status and decoded body of one request."""
    connection = http.client.HTTPConnection(url.host, url.http_port, timeout=30)
    data = json.dumps(body) if body is not None else None
    connection.request(method, "/api" + path, data, headers=LOGIN if login else {})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text) if text else None


def opened(url: BrokerUrl) -> BlockingChannel:
    return pika.BlockingConnection(pika.URLParameters(url)).channel()


def properties(**fields: Any) -> pika.BasicProperties:
    return pika.BasicProperties(**fields)


def search_all(url: BrokerUrl, path: str, body: dict[str, object]) -> list[dict[str, Any]]:
    """All pages of a search."""
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        status, page = ask(url, "POST", path, {**body, "cursor": cursor})
        assert status == 200, page
        items += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            return items
