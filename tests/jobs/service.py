"""The jobs service of a broker in this process, and tokens for it."""

import json
from base64 import b64encode
from http.client import HTTPConnection

from leveret.testing.broker import RunningBroker

NAMESPACE = "shop"


def address(server: RunningBroker) -> str:
    return f"http://{server.host}:{server.http_port}"


def token(server: RunningBroker) -> str:
    """A token of the administrator, good for every namespace."""
    connection = HTTPConnection(server.host, server.http_port, timeout=60)
    login = b64encode(b"guest:guest").decode()
    connection.request("POST", "/api/jobs/token", headers={"Authorization": f"Basic {login}"})
    found: str = json.loads(connection.getresponse().read())["token"]
    connection.close()
    return found
