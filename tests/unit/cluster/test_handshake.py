"""The handshake of two nodes, without sockets."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.cluster.errors import LinkRefusedError
from leveret.cluster.handshake import (
    BULK,
    MESSAGE_BYTES_MAX,
    OTHER_CLUSTER,
    OTHER_NODE,
    TALK,
    UNKNOWN_NODE,
    WELCOME,
    WRONG_SECRET,
    Dialing,
    Identity,
    Listening,
)
from leveret.errors import (
    FrameError,
    ProtocolError,
)

SECRET = b"a secret of the cluster"


def identity(node: int, *, cluster: str = "c", secret: bytes = SECRET) -> Identity:
    return Identity(node, cluster, secret, 100 + node)


def shake(dialing: Dialing, listening: Listening) -> None:
    """All messages there and back, until the listener has been convinced."""
    proof = dialing.feed(listening.feed(dialing.begin()))
    listening.feed(proof)


def pair(dialer: Identity, listener: Identity, target: int = 1) -> tuple[Dialing, Listening]:
    return Dialing(dialer, b"d" * 32, target, BULK), Listening(listener, b"l" * 32)


def test_two_nodes_learn_who_the_other_is() -> None:
    dialing, listening = pair(identity(2), identity(1))
    shake(dialing, listening)
    assert listening.is_done
    assert (listening.peer, listening.incarnation, listening.purpose) == (2, 102, BULK)
    dialing.feed(listening.verdict(WELCOME) + b"first frame")
    assert dialing.is_done
    assert (dialing.peer, dialing.incarnation) == (1, 101)
    assert dialing.rest() == b"first frame"


def test_bytes_may_come_one_by_one() -> None:
    dialing, listening = pair(identity(2), identity(1))
    challenge = b"".join(listening.feed(bytes([byte])) for byte in dialing.begin())
    proof = b"".join(dialing.feed(bytes([byte])) for byte in challenge)
    for byte in proof:
        listening.feed(bytes([byte]))
    for byte in listening.verdict(WELCOME):
        dialing.feed(bytes([byte]))
    assert listening.is_done
    assert dialing.is_done


@pytest.mark.parametrize(
    ("dialer", "target", "code"),
    [
        (identity(2, secret=b"a guess that is wrong"), 1, WRONG_SECRET),
        (identity(2, cluster="other"), 1, OTHER_CLUSTER),
        (identity(2), 3, OTHER_NODE),
    ],
)
def test_the_listener_refuses_and_says_why(dialer: Identity, target: int, code: int) -> None:
    dialing, listening = pair(dialer, identity(1), target)
    with pytest.raises(LinkRefusedError) as found:
        shake(dialing, listening)
    assert found.value.code == code
    assert not listening.is_done
    with pytest.raises(LinkRefusedError) as told:
        dialing.feed(listening.verdict(code))
    assert told.value.code == code
    assert told.value.by_peer


def test_a_listener_that_does_not_know_the_secret_is_not_taken() -> None:
    dialing, _ = pair(identity(2), identity(1))
    impostor = Listening(identity(1, secret=b"x" * 16), b"l" * 32)
    proof = dialing.feed(impostor.feed(dialing.begin()))
    assert proof
    with pytest.raises(LinkRefusedError) as found:
        dialing.feed(impostor.verdict(WELCOME))
    assert found.value.code == WRONG_SECRET
    assert not dialing.is_done


def test_a_proof_cannot_be_used_for_another_handshake() -> None:
    dialing, listening = pair(identity(2), identity(1))
    hello = dialing.begin()
    proof = dialing.feed(listening.feed(hello))
    later = Listening(identity(1), b"m" * 32)
    later.feed(hello)
    with pytest.raises(LinkRefusedError):
        later.feed(proof)


def test_a_listeners_own_proof_does_not_open_it() -> None:
    dialing, listening = pair(identity(2), identity(1))
    listening.feed(dialing.begin())
    verdict = listening.verdict(WELCOME)
    reflected = verdict[:3] + bytes([33]) + bytes([3]) + verdict[6:]
    with pytest.raises(LinkRefusedError):
        listening.feed(reflected)


def test_the_owner_can_refuse_a_node_that_it_does_not_know() -> None:
    dialing, listening = pair(identity(2), identity(1))
    shake(dialing, listening)
    with pytest.raises(LinkRefusedError, match="no node of this cluster"):
        dialing.feed(listening.verdict(UNKNOWN_NODE))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (0).to_bytes(4, "big"),
        (MESSAGE_BYTES_MAX + 1).to_bytes(4, "big"),
        (5).to_bytes(4, "big") + b"\x03abcd",
        (5).to_bytes(4, "big") + b"\x01abcd",
        (3).to_bytes(4, "big") + b"\x01ab",
    ],
)
def test_whatever_comes_is_a_fault_of_the_protocol(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Listening(identity(1), b"l" * 32).feed(data)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_bring_a_handshake_down_or_through(noise: bytes, cut: int) -> None:
    """Invariant: `ProtocolError` or `LinkRefusedError`, and never done without a proof."""
    dialing, listening = pair(identity(2), identity(1))
    hello = dialing.begin()
    sides = [(listening, hello[:cut] + noise), (dialing, noise)]
    for side, data in sides:
        with contextlib.suppress(ProtocolError, LinkRefusedError):
            side.feed(data)
        assert not side.is_done


def test_a_handshake_keeps_no_more_than_one_message() -> None:
    with pytest.raises(FrameError):
        Listening(identity(1), b"l" * 32).feed(b"\x7f" * 10_000)


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(identity(1))
    assert SECRET.decode() not in repr(identity(1))


def test_every_cut_of_a_hello_waits_for_more() -> None:
    hello = Dialing(identity(2), b"d" * 32, 1, TALK).begin()
    for end in range(len(hello)):
        assert Listening(identity(1), b"l" * 32).feed(hello[:end]) == b""
