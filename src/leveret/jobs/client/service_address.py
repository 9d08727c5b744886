"""Where the jobs service is and which token is sent, from arguments or the environment."""

import os
import ssl
from typing import Final

from leveret.http_client.address import Address, parse_address
from leveret.http_client.requests import RequestEncoder

DEFAULT_URL: Final = "http://127.0.0.1:15672"
URL_VARIABLE: Final = "LEVERET_URL"
TOKEN_VARIABLE: Final = "LEVERET_JOBS_TOKEN"
DEFAULT_NAMESPACE: Final = "default"


def find_service(url: str | None, tls: ssl.SSLContext | None) -> Address:
    """Return the address of the service; ValueError where the URL is not one."""
    text = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    return parse_address(text, tls=tls)


def make_encoder(address: Address, token: str | None) -> RequestEncoder:
    """Return the encoder of all requests; ValueError where the token cannot be sent."""
    found = token or os.environ.get(TOKEN_VARIABLE)
    return RequestEncoder(address, token=found, user_agent="leveret-jobs")
