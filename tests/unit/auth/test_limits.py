"""Limits of connections and channels."""

import json
import re

import pytest

from leveret.auth.limits import USER_LIMIT, VHOST_LIMIT, Quotas
from leveret.engine.broker import Broker
from leveret.errors import NotAllowedError


def test_without_limits_everything_may_be_opened() -> None:
    quotas = Quotas(Broker(1).register)
    for _ in range(100):
        quotas.open_connection("u", "/")
        quotas.open_channel("u")


@pytest.mark.parametrize("limit", [-1, 0, 2])
def test_connections_of_a_user_are_limited_in_rabbitmqs_words(limit: int) -> None:
    register = Broker(1).register
    register.put(USER_LIMIT, "u", json.dumps({"max-connections": limit}))
    quotas = Quotas(register)
    for _ in range(limit if limit >= 0 else 10):
        quotas.open_connection("u", "/")
    if limit < 0:
        return
    text = f"connection refused for user 'u': user connection limit \\({limit}\\) is reached"
    with pytest.raises(NotAllowedError, match=text):
        quotas.open_connection("u", "/")
    quotas.open_connection("v", "/")
    if limit > 0:
        quotas.close_connection("u", "/")
        quotas.open_connection("u", "/")


def test_connections_of_a_vhost_and_of_the_node_are_limited() -> None:
    register = Broker(1).register
    register.put(VHOST_LIMIT, "/", json.dumps({"max-connections": 1}))
    quotas = Quotas(register)
    quotas.connections_max = 2
    quotas.open_connection("u", "/")
    text = "access to vhost '/' refused for user 'v': connection limit \\(1\\) is reached"
    with pytest.raises(NotAllowedError, match=text):
        quotas.open_connection("v", "/")
    quotas.open_connection("v", "other")
    with pytest.raises(NotAllowedError, match="node connection limit \\(2\\) is reached"):
        quotas.open_connection("v", "third")


def test_channels_of_a_user_are_limited_over_all_connections() -> None:
    register = Broker(1).register
    register.put(USER_LIMIT, "u", json.dumps({"max-channels": 2}))
    quotas = Quotas(register)
    quotas.open_channel("u")
    quotas.open_channel("u")
    text = (
        "number of channels opened for user 'u' has reached the maximum allowed user limit of (2)"
    )
    with pytest.raises(NotAllowedError, match=re.escape(text)):
        quotas.open_channel("u")
    quotas.close_channel("u")
    quotas.open_channel("u")
