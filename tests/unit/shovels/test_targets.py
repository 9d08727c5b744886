"""Which addresses links of ordinary users may connect to."""

import asyncio
import socket

import pytest

from leveret.auth.user import User
from leveret.errors import AccessRefusedError, ConfigError
from leveret.shovels.owner import Owner
from leveret.shovels.targets import TargetCheck, TargetRules


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1%1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "64:ff9b::a00:1",
    ],
)
def test_address_that_is_not_public_is_refused(address: str) -> None:
    assert not TargetRules("").allows("example.org", address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_address_is_allowed(address: str) -> None:
    assert TargetRules("").allows("example.org", address)


@pytest.mark.parametrize(
    ("allowed", "host", "address", "is_allowed"),
    [
        ("10.1.0.0/16", "h", "10.1.2.3", True),
        ("10.1.0.0/16", "h", "::ffff:10.1.2.3", True),
        ("10.1.0.0/16", "h", "10.2.2.3", False),
        ("fd00::/8, 192.168.0.7", "h", "fd12::1", True),
        ("fd00::/8, 192.168.0.7", "h", "192.168.0.7", True),
        ("fd00::/8, 192.168.0.7", "h", "192.168.0.8", False),
        ("billing.internal", "Billing.Internal", "10.0.0.1", True),
        ("billing.internal", "internal", "10.0.0.1", False),
    ],
)
def test_target_is_allowed_by_its_address_network_or_name(
    allowed: str, host: str, address: str, is_allowed: bool
) -> None:
    assert TargetRules(allowed).allows(host, address) is is_allowed


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "a b", "http://x", "-x"])
def test_invalid_entry_is_a_fault_of_the_configuration(entry: str) -> None:
    with pytest.raises(ConfigError, match="neither a host nor a network"):
        TargetRules(f"localhost,{entry}")


@pytest.mark.parametrize(
    ("answers", "allowed"), [(["127.0.0.1", "8.8.8.8"], ["8.8.8.8"]), (["10.0.0.1"], [])]
)
def test_connection_may_only_go_to_checked_addresses_of_a_name(
    answers: list[str], allowed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def getaddrinfo(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 80)) for each in answers]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    check = TargetCheck(TargetRules(""), Owner("maker", lambda name: User(name, ("policymaker",))))
    if allowed:
        assert asyncio.run(check.resolve("rebound.example", 80)) == allowed
        return
    with pytest.raises(AccessRefusedError, match="which is not a public address"):
        asyncio.run(check.resolve("rebound.example", 80))
