"""Policies and operator policies."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.definitions.exporting import policy_row
from leveret.definitions.policies import PolicyDefinitions
from leveret.errors import NotFoundError
from leveret.http.framework.bodies import change_response, object_of, require_keys, vhost_not_found
from leveret.http.framework.node import NodeView
from leveret.http.framework.operations import Access, Operation
from leveret.http.framework.permissions import governed_vhost, governed_vhosts, is_administrator
from leveret.http.framework.request_parts import node_of, part_of
from leveret.http.framework.responses import json_response

PoliciesOf = Callable[[NodeView], PolicyDefinitions]
Handler = Callable[[Request], Awaitable[Response]]


class PolicyBody(msgspec.Struct, rename={"apply_to": "apply-to"}):
    """Body of PUT: a policy without vhost and name."""

    pattern: str
    definition: dict[str, object]
    priority: float = 0
    apply_to: str = "all"


class PolicyInfo(msgspec.Struct, rename={"apply_to": "apply-to"}):
    """One policy."""

    vhost: str
    name: str
    pattern: str
    apply_to: str
    definition: dict[str, object]
    priority: float


def _policies(node: NodeView) -> PolicyDefinitions:
    return node.definitions.policies


def _operator_policies(node: NodeView) -> PolicyDefinitions:
    return node.definitions.operator_policies


async def wait_for_policies(node: NodeView) -> None:
    """Return when every queue and exchange obeys the current policies."""
    while node.definitions.is_applying():
        with node.turn():
            node.definitions.apply_some()
        await asyncio.sleep(0)


def _list_all(policies_of: PoliciesOf) -> Handler:
    async def list_all(request: Request) -> Response:
        governed = governed_vhosts(request)
        found = policies_of(node_of(request)).all()
        return json_response([policy_row(*row) for row in found if row[0] in governed])

    return list_all


def _list_vhost(policies_of: PoliciesOf) -> Handler:
    async def list_vhost(request: Request) -> Response:
        node = node_of(request)
        vhost = governed_vhost(request)
        node.broker.vhost(vhost)
        return json_response([policy_row(*row) for row in policies_of(node).all(vhost)])

    return list_vhost


def _get_handler(policies_of: PoliciesOf) -> Handler:
    async def get(request: Request) -> Response:
        vhost, name = governed_vhost(request), part_of(request, "name")
        value = policies_of(node_of(request)).get(vhost, name)
        if value is None:
            raise NotFoundError("no such policy")
        return json_response(policy_row(vhost, name, value))

    return get


def _put_handler(policies_of: PoliciesOf) -> Handler:
    async def put(request: Request) -> Response:
        node = node_of(request)
        vhost, name = governed_vhost(request), part_of(request, "name")
        if vhost not in node.broker.vhosts:
            return vhost_not_found()
        body = await object_of(request)
        require_keys(body, "pattern", "definition")
        if not name:
            raise HTTPException(400, "a policy needs a name")
        value = {
            "pattern": body["pattern"],
            "apply-to": body.get("apply-to", "all"),
            "definition": body["definition"],
            "priority": body.get("priority", 0),
        }
        if not is_administrator(request):
            policies_of(node).require_room(vhost, name, value)
        with node.turn():
            is_new = policies_of(node).put(vhost, name, value)
        await wait_for_policies(node)
        await node.synced()
        return change_response(is_new=is_new)

    return put


def _delete(policies_of: PoliciesOf) -> Handler:
    async def delete(request: Request) -> Response:
        node = node_of(request)
        vhost, name = governed_vhost(request), part_of(request, "name")
        with node.turn():
            was_there = policies_of(node).drop(vhost, name)
        if not was_there:
            raise NotFoundError("no such policy")
        await wait_for_policies(node)
        await node.synced()
        return change_response()

    return delete


def _operations(
    root: str, what: str, access: Access, policies_of: PoliciesOf
) -> tuple[Operation, ...]:
    one = f"{root}/{{vhost}}/{{name}}"
    return (
        Operation(
            method="GET",
            path=root,
            handler=_list_all(policies_of),
            summary=f"List the {what} of all vhosts that the user may open.",
            group="policies",
            answer=list[PolicyInfo],
        ),
        Operation(
            method="GET",
            path=f"{root}/{{vhost}}",
            handler=_list_vhost(policies_of),
            summary=f"List the {what} of a vhost.",
            group="policies",
            answer=list[PolicyInfo],
        ),
        Operation(
            method="GET",
            path=one,
            handler=_get_handler(policies_of),
            summary=f"Return one of the {what}.",
            group="policies",
            access=access,
            answer=PolicyInfo,
        ),
        Operation(
            method="PUT",
            path=one,
            handler=_put_handler(policies_of),
            summary=f"Set one of the {what}; the answer comes when it is in force.",
            group="policies",
            access=access,
            body=PolicyBody,
            status=201,
        ),
        Operation(
            method="DELETE",
            path=one,
            handler=_delete(policies_of),
            summary=f"Delete one of the {what}; the answer comes when it is no longer in force.",
            group="policies",
            access=access,
            status=204,
        ),
    )


OPERATIONS: Final = (
    *_operations("/api/policies", "policies", Access.POLICYMAKER, _policies),
    *_operations(
        "/api/operator-policies", "operator policies", Access.ADMINISTRATOR, _operator_policies
    ),
)
