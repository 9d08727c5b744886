"""AMQP URIs as clients write them."""

import pytest

from leveret.errors import ConfigError
from leveret.perf.load import Load, with_uri


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("amqp://", Load()),
        ("amqp://hare", Load(host="hare")),
        ("amqp://hare:5673/", Load(host="hare", port=5673)),
        ("amqps://hare", Load(host="hare", port=5671, tls=True)),
        (
            "amqp://a%40b:p%3Aw@hare/a%2Fb",
            Load(host="hare", user="a@b", password="p:w", vhost="a/b"),
        ),
        ("amqp://[::1]:7000", Load(host="::1", port=7000)),
    ],
)
def test_address_gives_host_port_login_vhost_and_tls(uri: str, expected: Load) -> None:
    assert with_uri(Load(), uri) == expected


@pytest.mark.parametrize("uri", ["http://hare", "hare:5672", "amqp://hare:no"])
def test_other_addresses_are_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match=uri.split(":")[0]):
        with_uri(Load(), uri)
