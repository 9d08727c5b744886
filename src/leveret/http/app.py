"""The Starlette application: its routes, and errors in the form RabbitMQ's management API has.

`make_app` is given what it may ask of the running node and touches nothing else. Bodies are encoded
by msgspec. An error of any kind is a JSON object with `error` and `reason`; what went wrong inside
is logged, never sent.
"""

import http
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from leveret import __version__, build_info
from leveret.http import streams
from leveret.http.bodies import Failure, json
from leveret.http.facts import BrokerFacts
from leveret.http.paths import RawPath

# RabbitMQ: the words of its management API for what clients match on.
_ERROR_WORDS: Final = {400: "bad_request", 401: "not_authorized", 404: "Object Not Found"}


class Health(msgspec.Struct, omit_defaults=True):
    """Body of /api/health."""

    status: str  # "ok" or "failed"
    node: str
    reason: str = ""  # why it failed; left out when ok


class Version(msgspec.Struct):
    """Body of /api/version."""

    product: str
    version: str
    form: str  # "compiled" or "pure Python"
    python: str


def make_app(facts: BrokerFacts) -> Starlette:
    """The application over one node."""
    app = Starlette(
        routes=[
            Route("/api/health", get_health),
            Route("/api/version", get_version),
            *streams.routes(),
        ],
        middleware=[Middleware(RawPath)],
        exception_handlers={HTTPException: on_http_error, Exception: on_crash},
    )
    app.router.redirect_slashes = False  # a path with a slash too many is unknown, as in RabbitMQ
    app.state.facts = facts
    return app


async def get_health(request: Request) -> Response:
    facts: BrokerFacts = request.app.state.facts
    alarms = facts.alarms()
    if alarms:
        return json(Health("failed", facts.node_name, "; ".join(alarms)), status=503)
    return json(Health("ok", facts.node_name))


async def get_version(request: Request) -> Response:
    return json(Version("Leveret", __version__, build_info.form(), build_info.python()))


async def on_http_error(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    phrase = http.HTTPStatus(fault.status_code).phrase
    body = Failure(_ERROR_WORDS.get(fault.status_code, phrase), fault.detail or phrase)
    return json(body, status=fault.status_code, headers=dict(fault.headers or {}))


async def on_crash(request: Request, fault: Exception) -> Response:
    # Starlette raises the fault again after this answer is sent; uvicorn logs it, with traceback.
    return json(Failure("Internal Server Error", "Internal Server Error"), status=500)
