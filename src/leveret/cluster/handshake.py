"""The handshake of two nodes: identity, and proof of the shared secret, in one round trip.

    message   = size:u32 kind:u8 payload                     size counts what follows it
    HELLO     = magic:4 version:u8 purpose:u8 nonce:32 target card hmac:32    of the node that dials
    CHALLENGE = version:u8 nonce:32 card hmac:32                   of the node that listens
    PROOF     = hmac:32                                            of the node that dials
    REFUSAL   = code:u8 sentence hmac:32                           of either node
    target, sentence = size:u32 text                               card: see `Card`

Each HMAC is SHA-256, keyed by the cluster's secret, over a word for the step and everything that
was sent so far; that of REFUSAL covers HELLO. The one of HELLO keeps strangers from the listener's
identity and from material for guesses, but HELLO can be replayed. PROOF cannot: it covers the
nonces of both sides, and the listener opens nothing before it. The dialer may send more behind its
PROOF at once. The secret is never sent. This module uses no socket: bytes go in, and bytes to send
come out.
"""

import hmac
from dataclasses import dataclass
from typing import Final

from librt.strings import BytesWriter

from leveret.cluster.errors import LinkRefusedError
from leveret.cluster.raft.fields import Reader, write_bytes, write_u32, write_u64
from leveret.cluster.raft.members import (
    ADDRESS_BYTES_MAX,
    MEMBERS_MAX,
    NAME_BYTES_MAX,
    UID_BYTES_MAX,
)
from leveret.errors import FieldSyntaxError, FrameError

MAGIC: Final = b"LVRC"
VERSION: Final = 1
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16
CLUSTER_BYTES: Final = 16
SENTENCE_BYTES_MAX: Final = 2048
MESSAGE_BYTES_MAX: Final = 32 * 1024  # room for a card with the longest names
_SIZE_BYTES: Final = 4
_TLS: Final = b"\x16\x03"  # no message of a handshake is so large

# Purposes of a connection
TALK: Final = 1  # messages that must not wait: heartbeats, new blocks, votes, answers
BULK: Final = 2  # copies of directories, which must not delay heartbeats
RELAY: Final = 3  # the bytes of one client
KEPT: Final = (TALK, BULK)  # are kept open between two nodes
PURPOSES: Final = (TALK, BULK, RELAY)
PURPOSE_NAMES: Final = {TALK: "messages", BULK: "copies", RELAY: "a client"}  # in log lines

HELLO: Final = 1
CHALLENGE: Final = 2
PROOF: Final = 3
REFUSAL: Final = 4

# Codes of refusals. `leveret.cluster.admission` has the sentences.
WELCOME: Final = 0
OTHER_VERSION: Final = 1
WRONG_SECRET: Final = 2
OTHER_CLUSTER: Final = 3
OTHER_NODE: Final = 4
TWICE: Final = 6
OTHER_FORMAT: Final = 7
LOST_DATA: Final = 8
REMOVED: Final = 9
OTHER_PEERS: Final = 10
HAS_DATA: Final = 11
NOT_LEADER: Final = 12

_HAS_DATA: Final = 1


@dataclass(frozen=True)
class Card:
    """The identity of a node, which it sends in the handshake.

    card = cluster name uid address number:u32 incarnation:u64 format_min:u32 format_max:u32
           flags:u8 count:u32 peer*          texts and bytes: size:u32 and that many bytes
    """

    name: str
    uid: bytes  # of its data directory
    address: str  # where others reach it
    incarnation: int  # of this process: another one of the same name has another
    cluster: bytes = b""  # empty: it is new, and belongs to no cluster yet
    number: int = 0  # 0: it has none yet
    format_min: int = 1  # formats of the log that it can read and write
    format_max: int = 1
    has_data: bool = False  # it was a single node, and no other node has its data yet
    peers: tuple[str, ...] = ()  # names of the nodes that it was told about, sorted

    def encode(self) -> bytes:
        writer = BytesWriter()
        for field in (self.cluster, self.name.encode(), self.uid, self.address.encode()):
            write_bytes(writer, field)
        write_u32(writer, self.number)
        write_u64(writer, self.incarnation)
        write_u32(writer, self.format_min)
        write_u32(writer, self.format_max)
        writer.append(self.has_data * _HAS_DATA)
        write_u32(writer, len(self.peers))
        for name in self.peers:
            write_bytes(writer, name.encode())
        return writer.getvalue()


def read_card(reader: Reader) -> Card:
    cluster = reader.sized_within(CLUSTER_BYTES)
    name = _read_text(reader, NAME_BYTES_MAX)
    uid = reader.sized_within(UID_BYTES_MAX)
    address = _read_text(reader, ADDRESS_BYTES_MAX)
    number = reader.u32()
    incarnation = reader.u64()
    format_min, format_max = reader.u32(), reader.u32()
    flags = reader.u8()
    count = reader.count(_SIZE_BYTES)
    if count > MEMBERS_MAX:
        raise FieldSyntaxError(f"{count} peers, more than {MEMBERS_MAX}")
    peers = tuple(_read_text(reader, NAME_BYTES_MAX) for _ in range(count))
    if not name or not uid:
        raise FieldSyntaxError("a node without a name or uid")
    return Card(
        name=name,
        uid=uid,
        address=address,
        incarnation=incarnation,
        cluster=cluster,
        number=number,
        format_min=format_min,
        format_max=format_max,
        has_data=bool(flags & _HAS_DATA),
        peers=peers,
    )


def _read_text(reader: Reader, bytes_max: int) -> str:
    """Read a text that may be shown: one line of printable characters."""
    try:
        text = reader.sized_within(bytes_max).decode()
    except UnicodeDecodeError:
        raise FieldSyntaxError("a text that is not UTF-8") from None
    if not text.isprintable():
        raise FieldSyntaxError("a text with characters that cannot be printed")
    return text


class Handshake:
    """One side of one handshake; `is_done` when the peer has proved its identity."""

    def __init__(self, me: Card, secret: bytes, nonce: bytes) -> None:
        assert len(nonce) == NONCE_BYTES
        assert len(secret) >= SECRET_BYTES_MIN
        self.me = me
        self.card: Card | None = None  # of the peer
        self.is_proven = False  # the peer knows the secret; its HELLO may still be a replay
        self.purpose = 0
        self.is_done = False
        self._secret = secret
        self._nonce = nonce
        self._hello = b""
        self._challenge = b""
        self._data = b""

    def begin(self) -> bytes:
        """Return the first bytes to send, before the peer has sent any."""
        return b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the peer; return bytes to send. Raise `LinkRefusedError` by its refusal.

        A message that breaks the format raises a `ProtocolError`. The owner looks at `card` when it
        is there, and before it sends the bytes.
        """
        self._data += data
        out = b""
        while not self.is_done:
            body = self._take_message()
            if body is None:
                break
            out += self._on_message(body)
        return out

    def rest(self) -> bytes:
        """Return the bytes that arrived after the handshake."""
        assert self.is_done
        rest, self._data = self._data, b""
        return rest

    def _take_message(self) -> bytes | None:
        if len(self._data) < _SIZE_BYTES:
            return None
        if self._data.startswith(_TLS):
            raise FrameError("it begins with TLS: use --cluster-tls on all nodes or on none")
        size = Reader(self._data, 0, len(self._data)).u32()
        if size == 0 or size > MESSAGE_BYTES_MAX:
            raise FrameError(f"{size} bytes in a handshake")
        end = _SIZE_BYTES + size
        if len(self._data) < end:
            return None
        body, self._data = self._data[_SIZE_BYTES:end], self._data[end:]
        return body

    def _on_message(self, body: bytes) -> bytes:
        if body[0] != REFUSAL:
            raise FieldSyntaxError(f"message {body[0]} in a handshake")
        signed, proof = _split_signed(body)
        reader = Reader(signed, 1, len(signed))
        code = reader.u8()
        sentence = _read_text(reader, SENTENCE_BYTES_MAX)
        reader.require_end()
        if not hmac.compare_digest(proof, self._sign(b"refuses", self._hello, signed)):
            code = WRONG_SECRET  # anyone can send this; the sentence is only for the log
        raise LinkRefusedError(code or WRONG_SECRET, sentence, by_peer=True)

    def refuse(self, code: int, sentence: str) -> bytes:
        """Return the message that ends this handshake."""
        text = sentence.encode()[:SENTENCE_BYTES_MAX].decode(errors="ignore").encode()
        writer = BytesWriter()
        writer.append(REFUSAL)
        writer.append(code)
        write_bytes(writer, text)
        signed = writer.getvalue()
        return _sized(signed + self._sign(b"refuses", self._hello, signed))

    def _sign(self, step: bytes, *parts: bytes) -> bytes:
        return hmac.digest(self._secret, b"\0".join((step, *parts)), "sha256")

    def _require_version(self, version: int) -> None:
        if version != VERSION:
            raise LinkRefusedError(
                OTHER_VERSION,
                f"one node speaks version {version} of the protocol between nodes and the other "
                f"version {VERSION}: install the same release of Leveret on both",
                by_peer=False,
            )

    def _refuse_secret(self, peer: str) -> LinkRefusedError:
        return LinkRefusedError(
            WRONG_SECRET,
            f"{peer} and node {self.me.name} have different secrets: "
            "give all nodes of the cluster the same --cluster-secret-file",
            by_peer=False,
        )


def _split_signed(body: bytes) -> tuple[bytes, bytes]:
    """Return a message without its HMAC, and the HMAC."""
    if len(body) <= PROOF_BYTES:
        raise FieldSyntaxError(f"a message of {len(body)} bytes in a handshake")
    return body[:-PROOF_BYTES], body[-PROOF_BYTES:]


class Dialing(Handshake):
    """The side that connects to the node `target`."""

    def __init__(self, me: Card, secret: bytes, nonce: bytes, target: str, purpose: int) -> None:
        super().__init__(me, secret, nonce)
        self.target = target
        self.purpose = purpose

    def begin(self) -> bytes:
        writer = BytesWriter()
        writer.append(HELLO)
        writer.write(MAGIC)
        writer.append(VERSION)
        writer.append(self.purpose)
        writer.write(self._nonce)
        write_bytes(writer, self.target.encode())
        writer.write(self.me.encode())
        self._hello = writer.getvalue()
        return _sized(self._hello + self._sign(b"hello", self._hello))

    def _on_message(self, body: bytes) -> bytes:
        if body[0] != CHALLENGE:
            return super()._on_message(body)
        self._require_version(Reader(body, 1, len(body)).u8())
        self._challenge, proof = _split_signed(body)
        reader = Reader(self._challenge, 2, len(self._challenge))
        reader.raw(NONCE_BYTES)
        card = read_card(reader)
        reader.require_end()
        if not hmac.compare_digest(proof, self._sign(b"listens", self._hello, self._challenge)):
            raise self._refuse_secret(f"node {self.target}")
        self.card = card
        self.is_proven = True
        self.is_done = True
        return _sized(bytes([PROOF]) + self._sign(b"dials", self._hello, self._challenge))


class Listening(Handshake):
    """The side that is connected to."""

    def __init__(self, me: Card, secret: bytes, nonce: bytes) -> None:
        super().__init__(me, secret, nonce)
        self.target = ""  # the name that the peer looks for

    def _on_message(self, body: bytes) -> bytes:
        if body[0] == HELLO and not self._hello:
            return self._on_hello(body)
        if body[0] == PROOF and self._hello:
            self._on_proof(body)
            return b""
        return super()._on_message(body)

    def _on_hello(self, body: bytes) -> bytes:
        reader = Reader(body, 1, len(body))
        if reader.raw(len(MAGIC)) != MAGIC:
            raise FieldSyntaxError("it does not speak the protocol between nodes")
        self._require_version(reader.u8())
        self._hello, proof = _split_signed(body)
        reader = Reader(self._hello, 2 + len(MAGIC), len(self._hello))
        purpose = reader.u8()
        reader.raw(NONCE_BYTES)
        target = _read_text(reader, NAME_BYTES_MAX)
        card = read_card(reader)
        reader.require_end()
        if purpose not in PURPOSES:
            raise FieldSyntaxError(f"a connection for purpose {purpose}")
        if not hmac.compare_digest(proof, self._sign(b"hello", self._hello)):
            raise self._refuse_secret(f"a node that calls itself {card.name}")
        self.card, self.purpose, self.target = card, purpose, target
        self.is_proven = True
        writer = BytesWriter()
        writer.append(CHALLENGE)
        writer.append(VERSION)
        writer.write(self._nonce)
        writer.write(self.me.encode())
        self._challenge = writer.getvalue()
        return _sized(self._challenge + self._sign(b"listens", self._hello, self._challenge))

    def _on_proof(self, body: bytes) -> None:
        assert self.card is not None
        proof = self._sign(b"dials", self._hello, self._challenge)
        if not hmac.compare_digest(body[1:], proof):
            raise self._refuse_secret(f"node {self.card.name}")
        self.is_done = True


def _sized(body: bytes) -> bytes:
    assert len(body) <= MESSAGE_BYTES_MAX
    writer = BytesWriter()
    write_u32(writer, len(body))
    return writer.getvalue() + body
