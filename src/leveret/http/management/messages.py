"""Publish and get messages over HTTP, for experiments and tools.

A publish is answered when the message is safe, as a confirm would be. A get takes messages from the
queue while the answer is made. Afterwards they are returned to the queue or removed, as `ackmode`
says.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import READ, WRITE
from leveret.engine.commands.consuming import get
from leveret.engine.commands.content import Content
from leveret.engine.commands.dead_letter import counted_header
from leveret.engine.commands.direct_reply import REPLY_NAME
from leveret.engine.commands.publishing import Route, publish
from leveret.engine.commands.settling import ack, close_session, recover, reject
from leveret.engine.message import COUNTED, REDELIVERED, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.outcomes import IN_LOG, KEYS_FULL, QUEUE_FULL, ROUTED
from leveret.engine.turns.session import Outlet, Session
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import (
    AccessRefusedError,
    LeveretError,
    NotFoundError,
    PreconditionFailedError,
    ResourceLockedError,
    UnsupportedError,
)
from leveret.http.framework.names import arguments_of, printable, require_short
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import BODY_BYTES_MAX, Operation, body_of
from leveret.http.framework.permissions import (
    exchange_name,
    queue_in,
    require,
    require_topic,
    used_vhost,
)
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.management.message_shapes import GotMessage, encode_payload, property_values
from leveret.slices import run_in_slices
from leveret.wire.properties import Properties, decode_properties, encode_header

GET_COUNT_MAX: Final = 10_000
GET_BYTES_MAX: Final = 64 * 1024 * 1024  # limit of the bodies in one answer

_WHITE_SPACE: Final = re.compile(r"[ \t\r\n]+")  # RabbitMQ: it may be anywhere in base64

# RabbitMQ: an AMQP error is shown with its code and name.
_CODES: Final = (
    (NotFoundError, "404 NOT_FOUND"),
    (AccessRefusedError, "403 ACCESS_REFUSED"),
    (ResourceLockedError, "405 RESOURCE_LOCKED"),
    (PreconditionFailedError, "406 PRECONDITION_FAILED"),
    (UnsupportedError, "540 NOT_IMPLEMENTED"),
)

Octet = Annotated[int, Meta(ge=0, le=255)]
Short = Annotated[str, Meta(max_length=255)]


class NewProperties(msgspec.Struct):
    """Properties of a message; omitted ones are not set."""

    content_type: Short | None = None
    content_encoding: Short | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: Annotated[int, Meta(ge=1, le=2)] | None = None
    priority: Octet | None = None
    correlation_id: Short | None = None
    reply_to: Short | None = None
    expiration: Short | None = None
    message_id: Short | None = None
    timestamp: Annotated[int, Meta(ge=0)] | None = None
    type: Short | None = None
    user_id: Short | None = None
    app_id: Short | None = None
    cluster_id: Short | None = None


class PublishBody(msgspec.Struct):
    """Body of POST …/publish."""

    routing_key: str
    payload: str
    payload_encoding: Literal["string", "base64"] = "string"
    properties: NewProperties = msgspec.field(default_factory=NewProperties)


class PublishResult(msgspec.Struct):
    """The result of a publish: `routed` is true if a queue has the message."""

    routed: bool


AckMode = Literal[
    "ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"
]
Number = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern="^[0-9]{1,9}$")]


class GetBody(msgspec.Struct):
    """Body of POST …/get."""

    count: Number
    ackmode: AckMode
    encoding: Literal["auto", "base64"]
    truncate: Number | None = None  # limit of each body, in bytes


async def publish_message(request: Request) -> Response:
    vhost = used_vhost(request)
    body = await body_of(request, PublishBody)
    name = exchange_name(part_of(request, "name"))
    key = require_short("routing_key", body.routing_key)
    payload = _payload(body)
    node = node_of(request)
    most = node.settings.message_bytes_max
    if len(payload) > most:
        raise HTTPException(400, f"message size {len(payload)} is larger than {most}")
    alarms = node.alarms()
    if alarms:
        raise HTTPException(503, f"publishers are blocked: {'; '.join(alarms)}")
    require(request, WRITE, vhost, "exchange", name)
    try:
        content = _content(request, body.properties, len(payload))
    except LeveretError as fault:
        raise HTTPException(400, _amqp_text(fault)) from None
    _require_keys(request, vhost, name, [key, *content.extra_keys])
    try:
        result = _publish(node, vhost, name, key, content, payload)
    except LeveretError as fault:
        raise HTTPException(400, _amqp_text(fault)) from None
    if result & IN_LOG:
        await node.synced()
    if result & KEYS_FULL:
        raise HTTPException(400, f"rejected: {vhost.key_room.refusal()}")
    if result & QUEUE_FULL:
        raise HTTPException(400, "rejected: a queue that it was routed to is full")
    return json_response(PublishResult(result & ROUTED != 0))


def _require_keys(request: Request, vhost: Vhost, name: str, keys: list[str]) -> None:
    exchange = vhost.exchanges.get(name)
    if exchange is not None:
        for key in keys:
            require_topic(request, WRITE, vhost, exchange, key)


def _publish(
    node: NodeView, vhost: Vhost, name: str, key: str, content: Content, payload: bytes
) -> int:
    """Publish in a turn of its own. Return the outcome."""
    with node.turn():
        exchange = vhost.exchange(name)
        result = publish(vhost, Route(exchange, key, mandatory=True), content, payload)
        exchange.published_in += 1
        return result


def _payload(body: PublishBody) -> bytes:
    if body.payload_encoding == "string":
        return body.payload.encode()
    try:
        return b64decode(_WHITE_SPACE.sub("", body.payload), validate=True)
    except (binascii.Error, ValueError):
        raise HTTPException(400, "payload is not base64") from None


def _content(request: Request, given: NewProperties, size: int) -> Content:
    properties = Properties()
    for name in NewProperties.__struct_fields__:
        if name != "headers":
            setattr(properties, name, getattr(given, name))
    if given.headers is not None:
        properties.headers = arguments_of(given.headers)
    _check_user(request, given.user_id)
    if given.reply_to == REPLY_NAME:
        raise PreconditionFailedError("fast reply consumer does not exist")
    try:
        return Content(encode_header(properties, size))
    except (ValueError, OverflowError) as fault:
        raise HTTPException(400, f"properties: {fault}") from None


def _check_user(request: Request, claimed: str | None) -> None:
    user = user_of(request)
    if claimed is not None and not user.may_claim(claimed):
        raise PreconditionFailedError(
            f"user_id property set to '{claimed}' but authenticated user was '{user.identity}'"
        )


def _amqp_text(fault: LeveretError) -> str:
    for kind, code in _CODES:
        if isinstance(fault, kind):
            return f"{code} - {fault}"
    return str(fault)


async def get_messages(request: Request) -> Response:
    vhost = used_vhost(request)
    body = await body_of(request, GetBody)
    name = part_of(request, "name")
    queue_in(vhost, name)
    require(request, READ, vhost, "queue", name)
    queue = vhost.queue(name, None)
    node = node_of(request)
    taking = _Taking(node, queue, user_of(request).name, body)
    try:
        await taking.take(min(int(body.count), GET_COUNT_MAX))
    finally:
        taking.settle()
    if queue.durable and not body.ackmode.endswith("requeue_true"):
        await node.synced()
    return json_response(taking.shown)


class _Taking:
    """Take messages from a queue for one request, in slices."""

    def __init__(self, node: NodeView, queue: Queue, user: str, wanted: GetBody) -> None:
        self._node = node
        self._queue = queue
        self._mode = wanted.ackmode
        self._is_binary = wanted.encoding == "base64"
        self._truncate = int(wanted.truncate) if wanted.truncate is not None else None
        outlet = Outlet()
        outlet.name = f"HTTP get by {user}"
        self._session = Session(outlet, node.broker.turn)
        self._is_complete = False
        self.shown: list[GotMessage] = []

    async def take(self, count: int) -> None:
        """Take up to `count` messages, as long as the queue has any."""
        await run_in_slices(self._steps(count), self._node.turn)
        self._is_complete = True

    def _steps(self, count: int) -> Iterator[None]:
        size = 0
        while len(self.shown) < count and size < GET_BYTES_MAX and not self._queue.deleted:
            message = get(self._session, self._queue, False)
            if message is None:
                return
            size += len(message.body)
            self.shown.append(self._show(message))
            yield

    def _show(self, message: Message) -> GotMessage:
        header = counted_header(message) if message.flags & COUNTED else message.header
        body = message.body[: self._truncate]
        payload, encoding = encode_payload(body, self._is_binary)
        return GotMessage(
            payload_bytes=len(message.body),
            redelivered=message.flags & REDELIVERED != 0,
            exchange=printable(message.address.exchange),
            routing_key=printable(message.address.routing_key),
            message_count=self._queue.message_count(),
            properties=property_values(decode_properties(header)),
            payload=payload,
            payload_encoding=encoding,
        )

    def settle(self) -> None:
        """Settle the messages as `ackmode` says, or return them if the request broke off."""
        slots, session = self._node.broker.slots, self._session
        with self._node.turn():
            if not session.unacked.count:
                pass
            elif not self._is_complete or self._mode == "ack_requeue_true":
                recover(slots, session)
            elif self._mode == "ack_requeue_false":
                ack(slots, session, 0, multiple=True)
            else:
                reject(
                    slots,
                    session,
                    0,
                    multiple=True,
                    requeue=self._mode == "reject_requeue_true",
                    failed=True,
                )
            close_session(slots, session)


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/api/exchanges/{vhost}/{name}/publish",
        handler=publish_message,
        summary="Publish a message; the answer comes when it is safe.",
        group="exchanges",
        body=PublishBody,
        body_bytes_max=BODY_BYTES_MAX,
        answer=PublishResult,
        is_audited=False,
    ),
    Operation(
        method="POST",
        path="/api/queues/{vhost}/{name}/get",
        handler=get_messages,
        summary="Take messages and return or remove them, as `ackmode` says; see also peek.",
        group="queues",
        body=GetBody,
        answer=list[GotMessage],
        is_export=True,
    ),
)
