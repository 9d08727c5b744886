"""A pytest plugin that gives the suites of aio-pika and aiormq the broker under test.

Those suites start a RabbitMQ container through a small Docker client of their own. This plugin
takes that client's place: `run` answers with the address in LEVERET_SUITE_HOST and
LEVERET_SUITE_PORT, and nothing is ever started or killed. It is loaded with `-p` from its own
folder and imports nothing of the project, as it runs in the suites' environment.
"""

from __future__ import annotations

import os
import sys
import types
from dataclasses import dataclass
from typing import Any

import pytest

HOST = os.environ.get("LEVERET_SUITE_HOST", "127.0.0.1")
PORT = int(os.environ.get("LEVERET_SUITE_PORT", "5672"))
NO_TLS_PORT = 1  # nothing listens there: the tests over TLS are refused at once


@dataclass
class ContainerInfo:
    id: str
    ports: dict[str, int]
    host: str


@dataclass
class DockerHostInfo:
    is_tcp: bool = True


class DockerNotAvailableError(Exception):
    """Never raised: the broker is always there."""


class DockerClient:
    """Answers every request for a container with the broker under test."""

    def __init__(self, docker_host_info: DockerHostInfo | None = None) -> None:
        self.info = docker_host_info

    def run(
        self, image: str, ports: list[str], environment: dict[str, str] | None = None
    ) -> ContainerInfo:
        return container()

    def kill(self, container_id: str) -> None:
        """The broker under test stays."""

    def remove(self, container_id: str) -> None:
        """The broker under test stays."""


def container() -> ContainerInfo:
    return ContainerInfo("broker under test", {"5672/tcp": PORT, "5671/tcp": NO_TLS_PORT}, HOST)


def check_docker_available() -> DockerHostInfo:
    return DockerHostInfo()


@pytest.fixture(scope="session")
def rabbitmq_container() -> ContainerInfo:
    return container()


@pytest.fixture(scope="session")
def amqp_direct_url(rabbitmq_container: ContainerInfo) -> Any:
    from yarl import URL  # a dependency of the suites, not of the project's core

    return URL.build(scheme="amqp", user="guest", password="guest", path="//", host=HOST, port=PORT)


def take_its_place() -> None:
    """Must happen when this plugin is imported: a suite's conftest imports the client later."""
    module: Any = types.ModuleType("tests.docker_client")
    for part in (ContainerInfo, DockerHostInfo, DockerNotAvailableError, DockerClient):
        setattr(module, part.__name__, part)
    module.check_docker_available = check_docker_available
    sys.modules["tests.docker_client"] = module


take_its_place()
