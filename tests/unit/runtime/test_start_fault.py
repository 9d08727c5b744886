"""A node that cannot start says which path is at fault, and what to do."""

import socket
from errno import EACCES, EADDRNOTAVAIL
from pathlib import Path

import pytest

from leveret.config.load import load
from leveret.config.settings import Settings
from leveret.errors import ConfigError
from leveret.listening import bound_sockets
from leveret.runtime.start_faults import naming, start_fault


@pytest.mark.parametrize("name", ["", "lock", "raft", "0000000000000001.log"])
def test_existing_data_of_another_user_is_not_to_be_left_for_another_directory(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    found = start_fault(PermissionError(EACCES, "denied", str(path)), Settings(data=tmp_path))
    assert found == (
        f"--data: {path}: denied; give {tmp_path} and its files to the user of the node (chown -R)"
    )


def test_a_directory_that_cannot_be_made_is_to_be_chosen_elsewhere(tmp_path: Path) -> None:
    data = tmp_path / "new"
    found = start_fault(PermissionError(EACCES, "denied", str(tmp_path)), Settings(data=data))
    assert found.startswith(f"--data: {tmp_path}: ")
    assert found.endswith("; choose a data directory that this user can write to")


def test_a_fault_names_the_option_as_it_was_given(tmp_path: Path) -> None:
    settings = load({}, {"LEVERET_DATA": str(tmp_path), "LEVERET_TLS_CERT": "/absent"})
    path_fault = PermissionError(EACCES, "denied", str(tmp_path))
    assert start_fault(path_fault, settings).startswith(f"LEVERET_DATA: {tmp_path}: denied; ")
    fault = ConfigError("tls_cert: /absent: cannot be used")
    assert start_fault(fault, settings) == "LEVERET_TLS_CERT: /absent: cannot be used"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError) as told,
            naming("host", "127.0.0.1", "https_port", port),
        ):
            bound_sockets("127.0.0.1", port)
    assert str(told.value) == (
        f"https_port: cannot listen on 127.0.0.1:{port}: another program uses this port: stop it,"
        " or choose another port"
    )


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (OSError(EADDRNOTAVAIL, "no"), "host: cannot listen on h: this machine does not have this"),
        (socket.gaierror(-2, "unknown"), "host: cannot listen on h (unknown): this host name has"),
        (PermissionError(EACCES, "no"), "amqp_port: cannot listen on h:80: this user may not use"),
    ],
)
def test_an_address_that_cannot_be_used_names_its_option(fault: OSError, text: str) -> None:
    with pytest.raises(ConfigError) as told, naming("host", "h", "amqp_port", 80):
        raise fault
    assert str(told.value).startswith(text)


def test_other_faults_of_the_system_pass() -> None:
    fault = PermissionError(EACCES, "denied", "/a/file")
    with pytest.raises(PermissionError) as told, naming("host", "h", "amqp_port", 80):
        raise fault
    assert told.value is fault
