"""The description of the API (OpenAPI 3.1), made from the operations, and a page that shows it.

Every route comes from an `Operation`, so the description is complete. msgspec describes the types
of bodies and answers, as it decodes and encodes them.
"""

import re
from collections.abc import Sequence
from html import escape
from typing import Any, Final, get_origin

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from leveret import __version__
from leveret.http.framework.listing import ListPage
from leveret.http.framework.operations import Access, Operation, Query
from leveret.http.framework.responses import ErrorBody, encode_json

_REFERENCE: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_NEEDS: Final = {
    Access.PUBLIC: "Needs no login.",
    Access.ANY_USER: "Any user who has the permissions.",
    Access.MANAGEMENT: "Needs the tag management.",
    Access.POLICYMAKER: "Needs the tag policymaker.",
    Access.MONITORING: "Needs the tag monitoring.",
    Access.ADMINISTRATOR: "Needs the tag administrator.",
    Access.JOB_TOKEN: "Needs a token for the namespace, or the login of an administrator.",
    Access.METRICS: "Needs the tag monitoring if the setting metrics_login requires a login.",
}
_SECURITY: Final[dict[Access, list[dict[str, list[str]]]]] = {
    Access.PUBLIC: [],
    Access.JOB_TOKEN: [{"token": []}, {"login": []}],
}
_SIMPLE: Final = {str: "string", int: "integer", bool: "boolean", float: "number"}
# Errors that any request can get.
_COMMON_ERRORS: Final = {
    400: "The request is invalid; the body has the reason.",
    401: "The login failed, or the user has no permission.",
    404: "The object does not exist.",
    405: "The path does not have this method.",
    413: "The body is too large.",
    429: "Too many wrong passwords, requests or tasks; Retry-After has the seconds to wait.",
    503: "The node cannot do this at the moment; Retry-After may have the seconds to wait.",
}


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the whole description."""
    types = _types(operations)
    schemas, components = msgspec.json.schema_components(
        types, schema_hook=_any, ref_template=_REFERENCE
    )
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        entry = paths.setdefault(path, {})
        entry[operation.method.lower()] = _described(operation, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Leveret",
            "version": __version__,
            "description": "RabbitMQ's management API, and the additions of Leveret.",
        },
        "tags": [{"name": name} for name in dict.fromkeys(o.group for o in operations)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "login": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
    }


def _any(kind: type) -> dict[str, Any]:
    """Return the schema of `object`, which msgspec does not know: any value."""
    if kind is object:
        return {"description": "any value"}
    raise NotImplementedError(kind)


def _types(operations: Sequence[Operation]) -> list[Any]:
    """Return every type of the operations, once."""
    found: dict[str, Any] = {repr(ErrorBody): ErrorBody, repr(ListPage): ListPage}
    for operation in operations:
        others = [kind for _, kind in operation.failures]
        for kind in (operation.body, operation.answer, *others):
            if kind is not None:
                found[repr(kind)] = kind
    return list(found.values())


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    about: dict[str, Any] = {
        "operationId": _id(operation),
        "summary": operation.summary,
        "description": _NEEDS[operation.access],
        "tags": [operation.group],
        "parameters": _parameters(operation),
        "responses": _responses(operation, schemas),
        "security": _SECURITY.get(operation.access, [{"login": []}]),
    }
    if operation.body is not None:
        content = {"application/json": {"schema": schemas[repr(operation.body)]}}
        about["requestBody"] = {"required": True, "content": content}
    return about


def _id(operation: Operation) -> str:
    words = re.sub(r"[^a-zA-Z0-9]+", "_", operation.path.removeprefix("/api")).strip("_")
    return f"{operation.method.lower()}_{words or 'root'}"


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(operation.path)
    ]
    return in_path + [_query(one) for one in operation.query]


def _query(query: Query) -> dict[str, Any]:
    return {
        "name": query.name,
        "in": "query",
        "required": query.required,
        "description": query.description,
        "schema": {"type": _SIMPLE[query.type]},
    }


def _responses(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {str(operation.status): _success(operation, schemas)}
    if operation.status == 201:
        responses["204"] = {"description": "The object existed already and has been changed."}
    failure = {"application/json": {"schema": schemas[repr(ErrorBody)]}}
    for status, text in _COMMON_ERRORS.items():
        responses[str(status)] = {"description": text, "content": failure}
    for status, kind in operation.failures:
        media = operation.failure_media if status >= 400 else "application/json"
        text = (
            _COMMON_ERRORS.get(status, "The call failed.")
            if status >= 400
            else "Some items failed."
        )
        content = {media: {"schema": schemas[repr(kind)]}}
        responses[str(status)] = {"description": text, "content": content}
    return responses


def _success(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": operation.summary}
    if operation.media != "application/json":
        success["content"] = {operation.media: {"schema": {}}}
    elif operation.answer is not None:
        schema = _answer(operation, schemas)
        success["content"] = {"application/json": {"schema": schema}}
    return success


def _answer(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an answer: whole, with some columns only, or as a page of a list."""
    whole: dict[str, Any] = schemas[repr(operation.answer)]
    names = {query.name for query in operation.query}
    is_list = get_origin(operation.answer) is list
    forms = [whole]
    if "columns" in names:
        some: dict[str, Any] = {"type": "object", "description": "with `columns`: only these keys"}
        forms.append({"type": "array", "items": some} if is_list else some)
    if "page" in names and is_list:
        forms.append(schemas[repr(ListPage)])
    return whole if len(forms) == 1 else {"anyOf": forms}


async def get_description(request: Request) -> Response:
    state = request.app.state
    if getattr(state, "description_json", None) is None:
        state.description_json = encode_json(description_of(request))
    return Response(state.description_json, media_type="application/json")


def description_of(request: Request) -> dict[str, Any]:
    """Return the description. The first request makes it."""
    state = request.app.state
    if getattr(state, "description", None) is None:
        state.description = describe(state.operations)
    description: dict[str, Any] = state.description
    return description


async def get_page(request: Request) -> Response:
    state = request.app.state
    if getattr(state, "description_page", None) is None:  # anybody may ask, and making it costs
        state.description_page = page_of(description_of(request)).encode()
    return HTMLResponse(state.description_page, headers={"Content-Security-Policy": _POLICY})


_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
)


_STYLE: Final = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h1{margin:0}h2{margin:2rem 0 .5rem;text-transform:capitalize}
details{border:1px solid #8886;border-radius:6px;margin:.3rem 0;padding:.2rem .6rem}
summary{cursor:pointer;overflow-wrap:anywhere}
summary b{display:inline-block;min-width:4.5rem;font-family:ui-monospace,monospace}
code,pre{font:14px ui-monospace,monospace}pre{overflow:auto;background:#8882;padding:.6rem}
table{border-collapse:collapse}td{padding:.1rem .8rem .1rem 0;vertical-align:top}
"""


def page_of(description: dict[str, Any]) -> str:
    """Return the description as one HTML page without scripts."""
    info = description["info"]
    groups: dict[str, list[str]] = {tag["name"]: [] for tag in description["tags"]}
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            groups[about["tags"][0]].append(_entry(method.upper(), path, about))
    sections = "".join(f"<h2>{escape(name)}</h2>{''.join(e)}" for name, e in groups.items())
    schemas = "".join(_schema(n, s) for n, s in description["components"]["schemas"].items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])} For programs: "
        '<a href="/api/openapi.json">/api/openapi.json</a>.</p>'
        f"<main>{sections}<h2>Objects</h2>{schemas}</main></html>"
    )


def _entry(method: str, path: str, about: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code><td>{escape(p['in'])}"
        f"<td>{escape(p['schema']['type'])}<td>{escape(p.get('description', ''))}</tr>"
        for p in about["parameters"]
    )
    body = _named("Body", about.get("requestBody"))
    answers = "".join(_named(s, r) for s, r in about["responses"].items() if s.startswith("2"))
    return (
        f"<details><summary><b>{method}</b> <code>{escape(path)}</code><br>"
        f"{escape(about['summary'])}</summary><p>{escape(about['description'])}</p>"
        f"<table>{rows}</table>{body}{answers}</details>"
    )


def _named(title: str, part: dict[str, Any] | None) -> str:
    if part is None:
        return ""
    content = part.get("content", {})
    forms = [f"{escape(media)} {_link(about['schema'])}" for media, about in content.items()]
    return f"<p>{escape(title)}: {'; '.join(forms) or 'no content'}</p>"


def _link(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if schema.get("type") == "array":
        return f"array of {_link(schema['items'])}"
    if "anyOf" in schema:
        return " or ".join(_link(one) for one in schema["anyOf"])
    return escape(str(schema.get("type", "anything")))


def _schema(name: str, schema: dict[str, Any]) -> str:
    text = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
    about = escape(schema.get("description", ""))
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code> {about}</summary>'
        f"<pre>{escape(text)}</pre></details>"
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/openapi.json",
        handler=get_description,
        summary="Return this description.",
        group="description",
        access=Access.PUBLIC,
        answer=dict[str, object],
    ),
    Operation(
        method="GET",
        path="/docs",
        handler=get_page,
        summary="Return this description as a page.",
        group="description",
        access=Access.PUBLIC,
        media="text/html",
    ),
)
