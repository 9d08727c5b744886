"""The handshake of two nodes: identity, cluster, and proof of the shared secret.

    message   = size:u32 kind:u8 payload                     size counts what follows it
    HELLO     = magic:4 version:u8 purpose:u8 source:u64 target:u64 incarnation:u64
                nonce:32 size:u32 cluster                    from the node that dials
    CHALLENGE = version:u8 source:u64 incarnation:u64 nonce:32
    PROOF     = hmac:32                                      of the node that dials
    VERDICT   = code:u8 hmac:32                              of the node that listens

Each proof is an HMAC-SHA256, keyed by the cluster's secret, over a word for the side, the HELLO and
the CHALLENGE as they were sent. It covers both nonces and both node numbers, so a proof is useless
in another handshake, and for the other side. The secret is never sent. The listener verifies first,
and reveals nothing but its version before it has seen the proof. This module uses no socket: bytes
go in, and bytes to send come out.
"""

import hmac
from dataclasses import dataclass
from typing import Final

from librt.strings import BytesWriter

from leveret.cluster.errors import (
    LinkRefusedError,
)
from leveret.cluster.raft.entry import NOBODY
from leveret.cluster.raft.fields import Reader, write_bytes, write_u32, write_u64
from leveret.errors import (
    FieldSyntaxError,
    FrameError,
)

MAGIC: Final = b"LVRC"
VERSION: Final = 1
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16
CLUSTER_BYTES_MAX: Final = 255
MESSAGE_BYTES_MAX: Final = 512
_SIZE_BYTES: Final = 4

# What a connection is for
TALK: Final = 1  # all that is short: heartbeats, entries, votes, answers
BULK: Final = 2  # chunks of snapshots, which must not delay heartbeats
PURPOSES: Final = (TALK, BULK)
PURPOSE_NAMES: Final = {TALK: "talk", BULK: "bulk"}

HELLO: Final = 1
CHALLENGE: Final = 2
PROOF: Final = 3
VERDICT: Final = 4

# Verdicts
WELCOME: Final = 0
OTHER_VERSION: Final = 1
WRONG_SECRET: Final = 2
OTHER_CLUSTER: Final = 3
OTHER_NODE: Final = 4
UNKNOWN_NODE: Final = 5
TWICE: Final = 6

REASONS: Final = {
    OTHER_VERSION: "it speaks another version",
    WRONG_SECRET: "its secret is wrong",
    OTHER_CLUSTER: "it is of another cluster",
    OTHER_NODE: "it looks for another node",
    UNKNOWN_NODE: "it is no node of this cluster",
    TWICE: "another process of the same number is connected",
}


@dataclass(frozen=True)
class Identity:
    """Who a node is, to others."""

    node: int
    cluster: str
    secret: bytes
    incarnation: int  # of this process: another one of the same number has another

    def __post_init__(self) -> None:
        assert self.node != NOBODY
        assert len(self.secret) >= SECRET_BYTES_MIN
        assert len(self.cluster.encode()) <= CLUSTER_BYTES_MAX

    def __repr__(self) -> str:
        return f"Identity(node={self.node}, cluster={self.cluster!r})"  # never the secret


class Handshake:
    """One side of one handshake; `is_done` when the peer is who it says and takes us."""

    def __init__(self, me: Identity, nonce: bytes) -> None:
        assert len(nonce) == NONCE_BYTES
        self.me = me
        self.peer = NOBODY
        self.incarnation = 0  # of the peer
        self.purpose = 0
        self.is_done = False
        self._nonce = nonce
        self._hello = b""
        self._challenge = b""
        self._data = b""

    def begin(self) -> bytes:
        """What to send before anything has come."""
        return b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the peer; what to send. Raises `LinkRefusedError`, and `ProtocolError`s."""
        self._data += data
        out = b""
        while not self.is_done:
            body = self._next()
            if body is None:
                break
            out += self._on_message(body)
        return out

    def rest(self) -> bytes:
        """What came behind the handshake."""
        assert self.is_done
        rest, self._data = self._data, b""
        return rest

    def _next(self) -> bytes | None:
        if len(self._data) < _SIZE_BYTES:
            return None
        size = Reader(self._data, 0, len(self._data)).u32()
        if size == 0 or size > MESSAGE_BYTES_MAX:
            raise FrameError(f"{size} bytes in a handshake")
        end = _SIZE_BYTES + size
        if len(self._data) < end:
            return None
        body, self._data = self._data[_SIZE_BYTES:end], self._data[end:]
        return body

    def _on_message(self, body: bytes) -> bytes:
        raise NotImplementedError

    def _proof(self, side: bytes) -> bytes:
        text = b"\0".join((side, self._hello, self._challenge))
        return hmac.digest(self.me.secret, text, "sha256")


class Dialing(Handshake):
    """The side that connects."""

    def __init__(self, me: Identity, nonce: bytes, target: int, purpose: int) -> None:
        super().__init__(me, nonce)
        self.peer = target
        self._answering = NOBODY
        self.purpose = purpose

    def begin(self) -> bytes:
        writer = BytesWriter()
        writer.append(HELLO)
        writer.write(MAGIC)
        writer.append(VERSION)
        writer.append(self.purpose)
        write_u64(writer, self.me.node)
        write_u64(writer, self.peer)
        write_u64(writer, self.me.incarnation)
        writer.write(self._nonce)
        write_bytes(writer, self.me.cluster.encode())
        self._hello = writer.getvalue()
        return _sized(self._hello)

    def _on_message(self, body: bytes) -> bytes:
        reader = Reader(body, 1, len(body))
        if body[0] == CHALLENGE and not self._challenge:
            return self._on_challenge(body, reader)
        if body[0] == VERDICT:
            self._on_verdict(reader)
            return b""
        raise FieldSyntaxError(f"message {body[0]} in a handshake")

    def _on_challenge(self, body: bytes, reader: Reader) -> bytes:
        version = reader.u8()
        if version != VERSION:
            raise LinkRefusedError(OTHER_VERSION, REASONS[OTHER_VERSION], by_peer=False)
        self._answering = reader.u64()
        self.incarnation = reader.u64()
        reader.raw(NONCE_BYTES)
        reader.require_end()
        self._challenge = body
        return _sized(bytes([PROOF]) + self._proof(b"dials"))

    def _on_verdict(self, reader: Reader) -> None:
        code = reader.u8()
        proof = reader.raw(PROOF_BYTES)
        reader.require_end()
        if code != WELCOME:
            raise LinkRefusedError(code, REASONS.get(code, f"code {code}"), by_peer=True)
        if not self._challenge or not hmac.compare_digest(proof, self._proof(b"listens")):
            raise LinkRefusedError(WRONG_SECRET, REASONS[WRONG_SECRET], by_peer=False)
        if self._answering != self.peer:
            raise LinkRefusedError(OTHER_NODE, f"node {self._answering} answers", by_peer=False)
        self.is_done = True


class Listening(Handshake):
    """The side that is connected to. `judge` of its owner has the last word."""

    def __init__(self, me: Identity, nonce: bytes) -> None:
        super().__init__(me, nonce)
        self._cluster = b""
        self._target = NOBODY

    def _on_message(self, body: bytes) -> bytes:
        reader = Reader(body, 1, len(body))
        if body[0] == HELLO and not self._hello:
            return self._on_hello(body, reader)
        if body[0] == PROOF and self._hello:
            self._on_proof(reader)
            return b""
        raise FieldSyntaxError(f"message {body[0]} in a handshake")

    def _on_hello(self, body: bytes, reader: Reader) -> bytes:
        if reader.raw(len(MAGIC)) != MAGIC:
            raise FieldSyntaxError("it does not speak our protocol")
        if reader.u8() != VERSION:
            raise LinkRefusedError(OTHER_VERSION, REASONS[OTHER_VERSION], by_peer=False)
        self.purpose = reader.u8()
        self.peer = reader.u64()
        self._target = reader.u64()
        self.incarnation = reader.u64()
        reader.raw(NONCE_BYTES)
        self._cluster = reader.sized()
        reader.require_end()
        if self.purpose not in PURPOSES or self.peer == NOBODY:
            raise FieldSyntaxError(f"node {self.peer}, for purpose {self.purpose}")
        self._hello = body
        writer = BytesWriter()
        writer.append(CHALLENGE)
        writer.append(VERSION)
        write_u64(writer, self.me.node)
        write_u64(writer, self.me.incarnation)
        writer.write(self._nonce)
        self._challenge = writer.getvalue()
        return _sized(self._challenge)

    def _on_proof(self, reader: Reader) -> None:
        proof = reader.raw(PROOF_BYTES)
        reader.require_end()
        code = WELCOME
        if not hmac.compare_digest(proof, self._proof(b"dials")):
            code = WRONG_SECRET
        elif self._cluster != self.me.cluster.encode():
            code = OTHER_CLUSTER
        elif self._target != self.me.node:
            code = OTHER_NODE
        if code != WELCOME:
            raise LinkRefusedError(code, REASONS[code], by_peer=False)
        self.is_done = True

    def verdict(self, code: int) -> bytes:
        """What the owner has decided, or a refusal, as bytes."""
        proof = self._proof(b"listens") if code == WELCOME else bytes(PROOF_BYTES)
        return _sized(bytes([VERDICT, code]) + proof)


def _sized(body: bytes) -> bytes:
    assert len(body) <= MESSAGE_BYTES_MAX
    writer = BytesWriter()
    write_u32(writer, len(body))
    return writer.getvalue() + body
