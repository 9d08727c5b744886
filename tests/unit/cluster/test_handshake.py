"""The handshake of two nodes, and who is welcome, without sockets."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.cluster.admission import require_welcome
from leveret.cluster.errors import LinkRefusedError
from leveret.cluster.handshake import (
    BULK,
    HAS_DATA,
    LOST_DATA,
    MESSAGE_BYTES_MAX,
    OTHER_CLUSTER,
    OTHER_FORMAT,
    OTHER_PEERS,
    OTHER_VERSION,
    REMOVED,
    TALK,
    TWICE,
    WRONG_SECRET,
    Card,
    Dialing,
    Listening,
    read_card,
)
from leveret.cluster.raft.fields import Reader
from leveret.cluster.raft.members import Member, Members
from leveret.errors import FrameError, ProtocolError

SECRET = b"a secret of the cluster"
PEERS = ("a", "b", "c")
CLUSTER, OTHER = b"c" * 16, b"o" * 16


def new(name: str) -> Card:
    return Card(name=name, uid=name.encode() * 16, address=f"{name}:1", incarnation=7, peers=PEERS)


def formed(name: str, number: int, cluster: bytes = CLUSTER) -> Card:
    return replace(new(name), cluster=cluster, number=number)


def members(*names: str) -> Members:
    some = [Member(at, name, name.encode() * 16) for at, name in enumerate(names, 1)]
    return Members(some, [])


def pair(*, secret: bytes = SECRET, purpose: int = BULK) -> tuple[Dialing, Listening]:
    dialing = Dialing(new("b"), secret, b"d" * 32, "a", purpose)
    return dialing, Listening(new("a"), SECRET, b"l" * 32)


def shake(dialing: Dialing, listening: Listening) -> None:
    """Carry all messages there and back."""
    listening.feed(dialing.feed(listening.feed(dialing.begin())))


def test_two_nodes_learn_who_the_other_is_in_one_round_trip() -> None:
    dialing, listening = pair()
    proof = dialing.feed(listening.feed(dialing.begin()))
    assert (dialing.is_done, listening.is_done) == (True, False)
    listening.feed(proof + b"first frame")
    assert (dialing.is_done, listening.is_done) == (True, True)
    assert (listening.card, listening.target, listening.purpose) == (new("b"), "a", BULK)
    assert dialing.card == new("a")
    assert listening.rest() == b"first frame"


def test_a_card_keeps_all_its_fields() -> None:
    card = replace(formed("ä", 3), format_min=2, format_max=5, has_data=True)
    data = card.encode()
    assert read_card(Reader(data, 0, len(data))) == card


def test_bytes_may_come_one_by_one() -> None:
    dialing, listening = pair()
    challenge = b"".join(listening.feed(bytes([byte])) for byte in dialing.begin())
    proof = b"".join(dialing.feed(bytes([byte])) for byte in challenge)
    for byte in proof:
        listening.feed(bytes([byte]))
    assert listening.is_done
    assert dialing.is_done


def test_a_wrong_secret_is_refused_before_anything_is_told() -> None:
    dialing, listening = pair(secret=b"a guess that is wrong")
    with pytest.raises(LinkRefusedError, match="--cluster-secret-file") as found:
        listening.feed(dialing.begin())
    assert found.value.code == WRONG_SECRET
    with pytest.raises(LinkRefusedError, match="node a have different secrets") as told:
        dialing.feed(listening.refuse(found.value.code, str(found.value)))
    assert told.value.by_peer


def test_only_a_node_that_knows_the_secret_is_believed_that_this_one_was_removed() -> None:
    for secret, code in ((SECRET, REMOVED), (b"of a stranger here", WRONG_SECRET)):
        dialing, _ = pair()
        listening = Listening(new("a"), secret, b"l" * 32)
        with contextlib.suppress(LinkRefusedError):
            listening.feed(dialing.begin())
        with pytest.raises(LinkRefusedError, match="go away") as told:
            dialing.feed(listening.refuse(REMOVED, "go away"))
        assert told.value.code == code


def test_a_listener_that_does_not_know_the_secret_gets_no_proof() -> None:
    dialing, listening = pair()
    challenge = bytearray(listening.feed(dialing.begin()))
    challenge[-1] ^= 1
    with pytest.raises(LinkRefusedError) as found:
        dialing.feed(bytes(challenge))
    assert found.value.code == WRONG_SECRET
    assert dialing.card is None


def test_a_replayed_hello_and_proof_open_nothing() -> None:
    dialing, listening = pair()
    hello = dialing.begin()
    proof = dialing.feed(listening.feed(hello))
    later = Listening(new("a"), SECRET, b"m" * 32)
    later.feed(hello)
    with pytest.raises(LinkRefusedError):
        later.feed(proof)
    assert not later.is_done


def test_a_listeners_own_proof_does_not_open_it() -> None:
    dialing, listening = pair()
    challenge = listening.feed(dialing.begin())
    reflected = (33).to_bytes(4, "big") + b"\x03" + challenge[-32:]
    with pytest.raises(LinkRefusedError):
        listening.feed(reflected)


def test_another_version_is_refused_with_the_way_out() -> None:
    dialing, listening = pair()
    hello = bytearray(dialing.begin())
    hello[9] = 9
    with pytest.raises(LinkRefusedError, match="install the same release") as found:
        listening.feed(bytes(hello))
    assert found.value.code == OTHER_VERSION


@pytest.mark.parametrize(
    ("me", "mine", "peer", "code", "advice"),
    [
        (formed("a", 1), members("a"), formed("b", 1, OTHER), OTHER_CLUSTER, "move its data"),
        (
            formed("a", 1),
            members("a"),
            replace(formed("b", 1, OTHER), has_data=True),
            HAS_DATA,
            "node b has data of its own",
        ),
        (
            formed("a", 1),
            members("a", "b"),
            replace(new("b"), uid=b"wiped"),
            LOST_DATA,
            "leveret ctl cluster remove b",
        ),
        (formed("a", 1), members("a", "c", "x").without(3), formed("x", 3), REMOVED, "removed"),
        (new("a"), None, replace(new("b"), peers=("a", "b")), OTHER_PEERS, "same --cluster-peers"),
        (new("a"), None, replace(new("a"), uid=b"2"), TWICE, "another --node"),
        (
            replace(new("a"), format_min=3, format_max=4),
            None,
            replace(new("b"), format_max=2),
            OTHER_FORMAT,
            "upgrade node b",
        ),
        (
            new("a"),
            None,
            replace(new("b"), format_min=2, format_max=3),
            OTHER_FORMAT,
            "upgrade node a",
        ),
    ],
)
def test_a_refusal_says_what_to_do(
    me: Card, mine: Members | None, peer: Card, code: int, advice: str
) -> None:
    with pytest.raises(LinkRefusedError, match=advice) as found:
        require_welcome(me, mine, peer)
    assert found.value.code == code
    assert "\n" not in str(found.value)


def test_a_second_node_of_a_name_does_not_make_the_first_one_look_lost() -> None:
    """The advice would remove a member that is well."""
    mine, first = members("a", "b"), formed("b", 2)
    second = replace(new("b"), uid=b"second", address="127.0.0.1:9")
    with pytest.raises(LinkRefusedError, match="two nodes are called b") as at:
        require_welcome(formed("a", 1), mine, second, first)
    assert (at.value.code, second.address in str(at.value)) == (TWICE, True)
    with pytest.raises(LinkRefusedError, match="cluster remove b") as at:
        require_welcome(formed("a", 1), mine, second, second)
    assert at.value.code == LOST_DATA


@pytest.mark.parametrize(
    ("me", "mine", "peer"),
    [
        (new("a"), None, new("b")),
        (new("a"), None, formed("b", 1)),
        (formed("a", 1), members("a"), new("b")),  # listed
        (formed("a", 1), members("a", "b"), new("b")),  # was let in, and does not know it yet
        (formed("a", 1), members("a", "b"), formed("b", 2)),
        (formed("a", 1), members("a", "b"), formed("x", 3)),  # joined since
        (formed("a", 1), Members([], []), formed("b", 2)),  # has nothing of the log yet
        (formed("a", 1), members("a"), replace(new("d"), peers=(*PEERS, "d"))),  # not listed here
        (
            replace(new("a"), format_min=1, format_max=2),
            None,
            replace(new("b"), format_min=2, format_max=4),
        ),
    ],
)
def test_members_and_new_nodes_are_welcome(me: Card, mine: Members | None, peer: Card) -> None:
    require_welcome(me, mine, peer)


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
        Listening(new("a"), SECRET, b"l" * 32).feed(data)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_bring_a_handshake_down_or_through(noise: bytes, cut: int) -> None:
    """Invariant: `ProtocolError` or `LinkRefusedError`, and never done without a proof."""
    dialing, listening = pair()
    hello = dialing.begin()
    sides = [(listening, hello[:cut] + noise), (dialing, noise)]
    for side, data in sides:
        with contextlib.suppress(ProtocolError, LinkRefusedError):
            side.feed(data)
        assert not side.is_done


def test_a_handshake_keeps_no_more_than_one_message() -> None:
    with pytest.raises(FrameError):
        Listening(new("a"), SECRET, b"l" * 32).feed(b"\x7f" * 100_000)


def test_a_name_that_would_forge_lines_of_the_log_is_refused() -> None:
    dialing = Dialing(new("b\nERROR all is lost"), SECRET, b"d" * 32, "a", TALK)
    with pytest.raises(ProtocolError, match="cannot be printed"):
        Listening(new("a"), SECRET, b"l" * 32).feed(dialing.begin())


def test_every_cut_of_a_hello_waits_for_more() -> None:
    hello = Dialing(new("b"), SECRET, b"d" * 32, "a", TALK).begin()
    for end in range(len(hello)):
        assert Listening(new("a"), SECRET, b"l" * 32).feed(hello[:end]) == b""
