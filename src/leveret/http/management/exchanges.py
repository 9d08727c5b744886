"""Exchanges: list, show, declare and delete them."""

from functools import partial
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth import CONFIGURE
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.vhosts.vhost import Vhost
from leveret.http.framework.listing import (
    LIST_QUERY,
    RowReads,
    answer_list,
    flag_of,
    with_columns,
)
from leveret.http.framework.names import Flag, arguments_of, is_set, printable, require_short
from leveret.http.framework.operations import Operation, Query, body_of
from leveret.http.framework.permissions import (
    exchange_in,
    exchange_name,
    listed_vhosts,
    require,
    seen_vhost,
    used_vhost,
)
from leveret.http.framework.rates import RateSamples
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response
from leveret.http.management.declare_permissions import require_may_declare_exchange
from leveret.http.management.stats import ExchangeStats, rates_of, with_rates
from leveret.wire.tables import plain_table


class ExchangeInfo(msgspec.Struct, kw_only=True):
    """One exchange."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, object]
    message_stats: ExchangeStats
    user_who_performed_action: str = ""
    policy: str | None = None
    operator_policy: str | None = None
    effective_policy_definition: dict[str, object] = {}


class ExchangeDetail(ExchangeInfo, kw_only=True):
    """One exchange. `incoming` and `outgoing` are empty: counts per pair are not kept."""

    incoming: list[dict[str, object]] = []
    outgoing: list[dict[str, object]] = []


class NewExchange(msgspec.Struct):
    """Body of PUT."""

    type: str = "direct"
    durable: Flag = False
    auto_delete: Flag = False
    internal: Flag = False
    arguments: dict[str, Any] = {}


Row = tuple[Vhost, Exchange]


def exchange_info(rates: RateSamples, now_ms: int, row: Row) -> ExchangeInfo:
    vhost, exchange = row
    counts = (exchange.published_in, exchange.published_out)
    found = rates.of(("exchange", vhost.name, exchange.name), counts, now_ms)
    return ExchangeInfo(
        name=printable(exchange.name),
        vhost=printable(vhost.name),
        type=exchange.kind,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=plain_table(exchange.arguments),
        message_stats=with_rates(ExchangeStats, counts, found),
        policy=exchange.policy,
        operator_policy=exchange.operator_policy,
        effective_policy_definition=(
            plain_table(exchange.effective_policy) if exchange.effective_policy else {}
        ),
    )


async def list_exchanges(request: Request) -> Response:
    rows = [
        (vhost, exchange)
        for vhost in listed_vhosts(request)
        for exchange in vhost.exchanges.values()
    ]
    describe = partial(exchange_info, rates_of(request), node_of(request).now_ms())
    return await answer_list(request, rows, _name, describe, _READS)


def _name(row: Row) -> str:
    return printable(row[1].name)


def _place(row: Row) -> tuple[str, str]:
    return row[0].name, row[1].name


def _is_user_defined(row: Row) -> bool:
    name = row[1].name
    return name != "" and not name.startswith("amq.")


_READS: Final[RowReads[Row]] = RowReads(
    natural_order=_place,
    sort_keys={
        "name": _name,
        "vhost": lambda row: printable(row[0].name),
        "type": lambda row: row[1].kind,
    },
    only={"user_defined": _is_user_defined},
)


async def get_exchange(request: Request) -> Response:
    vhost = seen_vhost(request)
    exchange = exchange_in(vhost, part_of(request, "name"))
    info = exchange_info(rates_of(request), node_of(request).now_ms(), (vhost, exchange))
    return json_response(with_columns(request, ExchangeDetail(**msgspec.structs.asdict(info))))


async def declare_exchange(request: Request) -> Response:
    vhost = used_vhost(request)
    name = require_short("name", exchange_name(part_of(request, "name")))
    body = await body_of(request, NewExchange)
    kind = require_short("type", body.type)
    arguments = arguments_of(body.arguments)
    require_may_declare_exchange(request, vhost, name, kind, arguments)
    is_new = name not in vhost.exchanges
    node = node_of(request)
    durable, auto_delete = is_set(body.durable), is_set(body.auto_delete)
    with node.turn():
        vhost.declare_exchange(
            name,
            kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=is_set(body.internal),
            arguments=arguments,
        )
    if durable:
        await node.synced()
    return Response(status_code=201 if is_new else 204)


async def delete_exchange(request: Request) -> Response:
    vhost = used_vhost(request)
    name = exchange_name(part_of(request, "name"))
    if name not in vhost.exchanges:
        raise HTTPException(404, "Not Found")
    require(request, CONFIGURE, vhost, "exchange", name)
    node = node_of(request)
    with node.turn():
        vhost.delete_exchange(name, if_unused=flag_of(request, "if-unused"))
    await node.synced()
    return Response(status_code=204)


_GROUP: Final = "exchanges"
_ONE: Final = "/api/exchanges/{vhost}/{name}"
OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/exchanges",
        handler=list_exchanges,
        summary="List the exchanges of all vhosts that the user may see.",
        group=_GROUP,
        query=_READS.query(),
        answer=list[ExchangeInfo],
    ),
    Operation(
        method="GET",
        path="/api/exchanges/{vhost}",
        handler=list_exchanges,
        summary="List the exchanges of a vhost.",
        group=_GROUP,
        query=_READS.query(),
        answer=list[ExchangeInfo],
    ),
    Operation(
        method="GET",
        path=_ONE,
        handler=get_exchange,
        summary="Return one exchange; `amq.default` is the default exchange.",
        group=_GROUP,
        query=LIST_QUERY[:1],
        answer=ExchangeDetail,
    ),
    Operation(
        method="PUT",
        path=_ONE,
        handler=declare_exchange,
        summary="Declare an exchange.",
        group=_GROUP,
        body=NewExchange,
        status=201,
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        handler=delete_exchange,
        summary="Delete an exchange and its bindings.",
        group=_GROUP,
        query=(Query("if-unused", "only if it has no bindings", bool),),
        status=204,
    ),
)
