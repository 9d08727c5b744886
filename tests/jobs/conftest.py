"""A service for each store, shared by the tests of a session; each test has its own namespace."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.api import Api
from tests.jobs.stores import FACTORIES, Service

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=sorted(FACTORIES))
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """One service for all tests that leave it running."""
    with FACTORIES[request.param](tmp_path_factory.mktemp("jobs")) as running:
        yield running


@pytest.fixture(params=sorted(FACTORIES))
def own_service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service that a test may stop."""
    with FACTORIES[request.param](tmp_path / "own") as running:
        yield running


@pytest.fixture
def api(service: Service) -> Api:
    return api_of(service)


def api_of(service: Service, namespace: str | None = None) -> Api:
    """The API of a service, in a namespace that no other test has."""
    name = namespace or f"ns{next(_numbers)}"
    return Api(service.port, service.token(name), name)
