"""Where the service is and who asks: from the words of a user to what a connection needs."""

import os
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from leveret.jobs.client.http1 import Requests

DEFAULT_URL: Final = "http://127.0.0.1:15672"
URL_VARIABLE: Final = "LEVERET_URL"
TOKEN_VARIABLE: Final = "LEVERET_JOBS_TOKEN"
DEFAULT_NAMESPACE: Final = "default"
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """A service, and how to talk to it."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    requests: Requests
    shown: str  # without a password


def address_of(url: str | None, token: str | None, tls: ssl.SSLContext | None) -> Address:
    """What is not given is taken from the environment. ValueError for what is no address."""
    text = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    parts = urlsplit(text if "//" in text else f"http://{text}")
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{text!r} is no address such as {DEFAULT_URL}")
    context = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
    port = parts.port or _PORTS[parts.scheme]
    requests = Requests(parts, token or os.environ.get(TOKEN_VARIABLE))
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return Address(parts.hostname, port, context, requests, shown)
