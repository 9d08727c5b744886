"""Authorities, certificates, and a broker that uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leveret.testing import broker
from leveret.testing.broker import RunningBroker
from tests.tls.certificates import Pair, TestAuthority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    """An authority that the broker does not trust."""
    return TestAuthority(tmp_path_factory.mktemp("stranger"), "Stranger")


@pytest.fixture(scope="session")
def server(authority: TestAuthority) -> Pair:
    return authority.server()


@pytest.fixture(scope="module")
def secured(server: Pair) -> Iterator[RunningBroker]:
    """A broker with TLS for both fronts, which asks for no certificates."""
    files: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    with broker(http=True, amqps_port=0, https_port=0, **files) as running:
        yield running
