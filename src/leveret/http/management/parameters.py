"""Runtime parameters, global parameters and the cluster's name over HTTP."""

from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.auth.user import ADMINISTRATOR
from leveret.definitions.exporting import global_parameters, parameters
from leveret.definitions.parameters import CLUSTER_NAME, VHOST_LIMITS
from leveret.definitions.policies import OPERATOR_POLICY
from leveret.errors import NotFoundError
from leveret.http.framework.answers import json
from leveret.http.framework.bodies import made, no_vhost, object_of, require_keys
from leveret.http.framework.operations import Needs, Operation
from leveret.http.framework.permissions import governed_vhost, governed_vhosts
from leveret.http.framework.request_parts import facts_of, part_of, user_of
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
    """A value, of whatever form."""

    value: Any


class ClusterName(msgspec.Struct):
    """The name of the cluster."""

    name: str


async def list_parameters(request: Request) -> Response:
    governed = governed_vhosts(request)
    rows = parameters(facts_of(request).book)
    component = request.path_params.get("component")
    found = [row for row in rows if row["vhost"] in governed]
    if component is not None:
        found = [row for row in found if row["component"] == part_of(request, "component")]
    return json(found)


async def list_vhost_parameters(request: Request) -> Response:
    facts = facts_of(request)
    vhost = governed_vhost(request)
    facts.broker.vhost(vhost)
    component = part_of(request, "component")
    return json([row for row in parameters(facts.book, vhost) if row["component"] == component])


async def get_parameter(request: Request) -> Response:
    component, vhost, name = _parts(request)
    value = facts_of(request).book.parameters.get(component, vhost, name)
    if value is None:
        raise NotFoundError("no such parameter")
    return json(ParameterInfo(value, vhost, component, name))


async def put_parameter(request: Request) -> Response:
    facts = facts_of(request)
    component, vhost, name = _settable(request)
    if vhost not in facts.broker.vhosts:
        return no_vhost()
    body = await object_of(request)
    require_keys(body, "value")
    with facts.turn():
        is_new = facts.book.parameters.put(component, vhost, name, body["value"])
    await wait_for_policies(facts)
    await facts.synced()
    return made(is_new)


async def delete_parameter(request: Request) -> Response:
    facts = facts_of(request)
    parts = _settable(request)
    with facts.turn():
        was_there = facts.book.parameters.drop(*parts)
    if not was_there:
        raise NotFoundError("no such parameter")
    await wait_for_policies(facts)
    await facts.synced()
    return made(False)


def _parts(request: Request) -> tuple[str, str, str]:
    return part_of(request, "component"), governed_vhost(request), part_of(request, "name")


def _settable(request: Request) -> tuple[str, str, str]:
    """The same, to change it: what limits others is for administrators, by whatever path."""
    component, vhost, name = _parts(request)
    if component in (OPERATOR_POLICY, VHOST_LIMITS) and ADMINISTRATOR not in user_of(request).tags:
        raise HTTPException(401, "Not administrator user")
    return component, vhost, name


async def list_globals(request: Request) -> Response:
    return json(global_parameters(facts_of(request).book))


async def get_global(request: Request) -> Response:
    name = part_of(request, "name")
    found = dict(facts_of(request).book.parameters.globals())
    if name not in found:
        raise NotFoundError("no such parameter")
    return json(GlobalParameterInfo(name, found[name]))


async def put_global(request: Request) -> Response:
    body = await object_of(request)
    require_keys(body, "value")
    return made(await _put_global(request, part_of(request, "name"), body["value"]))


async def _put_global(request: Request, name: str, value: object) -> bool:
    facts = facts_of(request)
    with facts.turn():
        is_new = facts.book.parameters.put_global(name, value)
    await facts.synced()
    return is_new


async def delete_global(request: Request) -> Response:
    facts = facts_of(request)
    with facts.turn():
        was_there = facts.book.parameters.drop_global(part_of(request, "name"))
    if not was_there:
        raise NotFoundError("no such parameter")
    await facts.synced()
    return made(False)


async def get_cluster_name(request: Request) -> Response:
    return json(ClusterName(facts_of(request).book.cluster_name))


async def put_cluster_name(request: Request) -> Response:
    body = await object_of(request)
    require_keys(body, "name")
    if not isinstance(body["name"], str):
        raise HTTPException(400, "the name of a cluster is a text")
    await _put_global(request, CLUSTER_NAME, body["name"])
    return made(False)


_ONE: Final = "/api/parameters/{component}/{vhost}/{name}"
_GLOBAL: Final = "/api/global-parameters/{name}"

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/parameters",
        handler=list_parameters,
        about="All runtime parameters of the vhosts that the user may open.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        answer=list[ParameterInfo],
    ),
    Operation(
        method="GET",
        path="/api/parameters/{component}",
        handler=list_parameters,
        about="The runtime parameters of a component.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        answer=list[ParameterInfo],
    ),
    Operation(
        method="GET",
        path="/api/parameters/{component}/{vhost}",
        handler=list_vhost_parameters,
        about="The runtime parameters of a component in a vhost.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        answer=list[ParameterInfo],
    ),
    Operation(
        method="GET",
        path=_ONE,
        handler=get_parameter,
        about="One runtime parameter.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        answer=ParameterInfo,
    ),
    Operation(
        method="PUT",
        path=_ONE,
        handler=put_parameter,
        about="Set a runtime parameter of a known component.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        body=ValueBody,
        status=201,
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        handler=delete_parameter,
        about="Delete a runtime parameter.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/global-parameters",
        handler=list_globals,
        about="All global parameters.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        answer=list[GlobalParameterInfo],
    ),
    Operation(
        method="GET",
        path=_GLOBAL,
        handler=get_global,
        about="One global parameter.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        answer=GlobalParameterInfo,
    ),
    Operation(
        method="PUT",
        path=_GLOBAL,
        handler=put_global,
        about="Set a global parameter.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        body=ValueBody,
        status=201,
    ),
    Operation(
        method="DELETE",
        path=_GLOBAL,
        handler=delete_global,
        about="Delete a global parameter.",
        group="parameters",
        needs=Needs.POLICYMAKER,
        status=204,
    ),
    Operation(
        method="GET",
        path="/api/cluster-name",
        handler=get_cluster_name,
        about="The name of the cluster.",
        group="parameters",
        answer=ClusterName,
    ),
    Operation(
        method="PUT",
        path="/api/cluster-name",
        handler=put_cluster_name,
        about="Name the cluster.",
        group="parameters",
        needs=Needs.ADMINISTRATOR,
        body=ClusterName,
        status=204,
    ),
)
