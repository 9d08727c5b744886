"""Runtime parameters, global parameters and the name of the cluster."""

from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.definitions.exporting import global_parameters, parameters
from leveret.definitions.parameters import CLUSTER_NAME, OWNED, VALUE_BYTES_MAX, VHOST_LIMITS
from leveret.definitions.policies import OPERATOR_POLICY
from leveret.errors import NotFoundError
from leveret.http.framework.bodies import change_response, object_of, require_keys, vhost_not_found
from leveret.http.framework.operations import OBJECT_BYTES_MAX, Access, Operation
from leveret.http.framework.permissions import (
    governed_vhost,
    governed_vhosts,
    is_administrator,
    owner_name,
)
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import json_response
from leveret.http.management.policies import wait_for_policies


class ParameterInfo(msgspec.Struct):
    """One parameter."""

    value: Any
    vhost: str
    component: str
    name: str


class GlobalParameterInfo(msgspec.Struct):
    """One global parameter."""

    name: str
    value: Any


class ValueBody(msgspec.Struct):
    """Any JSON value."""

    value: Any


class ClusterName(msgspec.Struct):
    """The name of the cluster."""

    name: str


async def list_parameters(request: Request) -> Response:
    governed = governed_vhosts(request)
    rows = parameters(node_of(request).definitions)
    component = request.path_params.get("component")
    found = [row for row in rows if row["vhost"] in governed]
    if component is not None:
        found = [row for row in found if row["component"] == part_of(request, "component")]
    return json_response(found)


async def list_vhost_parameters(request: Request) -> Response:
    node = node_of(request)
    vhost = governed_vhost(request)
    node.broker.vhost(vhost)
    component = part_of(request, "component")
    return json_response(
        [row for row in parameters(node.definitions, vhost) if row["component"] == component]
    )


async def get_parameter(request: Request) -> Response:
    component, vhost, name = _parts(request)
    value = node_of(request).definitions.parameters.get(component, vhost, name)
    if value is None:
        raise NotFoundError("no such parameter")
    return json_response(ParameterInfo(value, vhost, component, name))


async def put_parameter(request: Request) -> Response:
    node = node_of(request)
    component, vhost, name = _parts_to_change(request)
    if vhost not in node.broker.vhosts:
        return vhost_not_found()
    body = await object_of(request)
    require_keys(body, "value")
    owner = owner_name(user_of(request)) if component in OWNED else None
    if not is_administrator(request):
        node.definitions.parameters.require_room(component, vhost, name, body["value"])
    with node.turn():
        is_new = node.definitions.parameters.put(component, vhost, name, body["value"], owner)
    await wait_for_policies(node)
    await node.synced()
    return change_response(is_new=is_new)


async def delete_parameter(request: Request) -> Response:
    node = node_of(request)
    parts = _parts_to_change(request)
    with node.turn():
        was_there = node.definitions.parameters.drop(*parts)
    if not was_there:
        raise NotFoundError("no such parameter")
    await wait_for_policies(node)
    await node.synced()
    return change_response()


def _parts(request: Request) -> tuple[str, str, str]:
    return part_of(request, "component"), governed_vhost(request), part_of(request, "name")


def _parts_to_change(request: Request) -> tuple[str, str, str]:
    """Return component, vhost and name of a parameter to change.

    Operator policies and vhost limits are for administrators, under this path too.
    """
    component, vhost, name = _parts(request)
    if component in (OPERATOR_POLICY, VHOST_LIMITS):
        _require_administrator(request)
    return component, vhost, name


def _require_administrator(request: Request) -> None:
    if not is_administrator(request):
        raise HTTPException(401, "Not administrator user")


def _global_to_change(request: Request) -> str:
    """Return the name of a global parameter to change.

    The name of the cluster is for administrators, under this path too.
    """
    name = part_of(request, "name")
    if name == CLUSTER_NAME:
        _require_administrator(request)
    return name


async def list_globals(request: Request) -> Response:
    return json_response(global_parameters(node_of(request).definitions))


async def get_global(request: Request) -> Response:
    name = part_of(request, "name")
    found = dict(node_of(request).definitions.parameters.globals())
    if name not in found:
        raise NotFoundError("no such parameter")
    return json_response(GlobalParameterInfo(name, found[name]))


async def put_global(request: Request) -> Response:
    name = _global_to_change(request)
    body = await object_of(request)
    require_keys(body, "value")
    if not is_administrator(request):
        node_of(request).definitions.parameters.require_global_room(name, body["value"])
    is_new = await _put_global(request, name, body["value"])
    return change_response(is_new=is_new)


async def _put_global(request: Request, name: str, value: object) -> bool:
    node = node_of(request)
    with node.turn():
        is_new = node.definitions.parameters.put_global(name, value)
    await node.synced()
    return is_new


async def delete_global(request: Request) -> Response:
    node = node_of(request)
    with node.turn():
        was_there = node.definitions.parameters.drop_global(_global_to_change(request))
    if not was_there:
        raise NotFoundError("no such parameter")
    await node.synced()
    return change_response()


async def get_cluster_name(request: Request) -> Response:
    return json_response(ClusterName(node_of(request).definitions.cluster_name))


async def put_cluster_name(request: Request) -> Response:
    body = await object_of(request)
    require_keys(body, "name")
    if not isinstance(body["name"], str):
        raise HTTPException(400, "the name of a cluster is a text")
    await _put_global(request, CLUSTER_NAME, body["name"])
    return change_response()


_ONE: Final = "/api/parameters/{component}/{vhost}/{name}"
_GLOBAL: Final = "/api/global-parameters/{name}"
_BODY_BYTES_MAX: Final = VALUE_BYTES_MAX + OBJECT_BYTES_MAX  # a value in the longest form of JSON

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/parameters",
        handler=list_parameters,
        summary="List the runtime parameters of all vhosts that the user may open.",
        group="parameters",
        access=Access.POLICYMAKER,
        answer=list[ParameterInfo],
    ),
    Operation(
        method="GET",
        path="/api/parameters/{component}",
        handler=list_parameters,
        summary="List the runtime parameters of a component.",
        group="parameters",
        access=Access.POLICYMAKER,
        answer=list[ParameterInfo],
    ),
    Operation(
        method="GET",
        path="/api/parameters/{component}/{vhost}",
        handler=list_vhost_parameters,
        summary="List the runtime parameters of a component in a vhost.",
        group="parameters",
        access=Access.POLICYMAKER,
        answer=list[ParameterInfo],
    ),
    Operation(
        method="GET",
        path=_ONE,
        handler=get_parameter,
        summary="Return one runtime parameter.",
        group="parameters",
        access=Access.POLICYMAKER,
        answer=ParameterInfo,
    ),
    Operation(
        method="PUT",
        path=_ONE,
        handler=put_parameter,
        summary="Set a runtime parameter of a known component.",
        group="parameters",
        access=Access.POLICYMAKER,
        body=ValueBody,
        body_bytes_max=_BODY_BYTES_MAX,
        status=201,
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        handler=delete_parameter,
        summary="Delete a runtime parameter.",
        group="parameters",
        access=Access.POLICYMAKER,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/global-parameters",
        handler=list_globals,
        summary="List all global parameters.",
        group="parameters",
        access=Access.POLICYMAKER,
        answer=list[GlobalParameterInfo],
    ),
    Operation(
        method="GET",
        path=_GLOBAL,
        handler=get_global,
        summary="Return one global parameter.",
        group="parameters",
        access=Access.POLICYMAKER,
        answer=GlobalParameterInfo,
    ),
    Operation(
        method="PUT",
        path=_GLOBAL,
        handler=put_global,
        summary="Set a global parameter.",
        group="parameters",
        access=Access.POLICYMAKER,
        body=ValueBody,
        body_bytes_max=_BODY_BYTES_MAX,
        status=201,
    ),
    Operation(
        method="DELETE",
        path=_GLOBAL,
        handler=delete_global,
        summary="Delete a global parameter.",
        group="parameters",
        access=Access.POLICYMAKER,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/cluster-name",
        handler=get_cluster_name,
        summary="Return the name of the cluster.",
        group="parameters",
        answer=ClusterName,
    ),
    Operation(
        method="PUT",
        path="/api/cluster-name",
        handler=put_cluster_name,
        summary="Set the name of the cluster.",
        group="parameters",
        access=Access.ADMINISTRATOR,
        body=ClusterName,
        status=204,
    ),
)
