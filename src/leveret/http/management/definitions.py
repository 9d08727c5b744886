"""Definitions over HTTP: export and import everything as one document.

Both are done in slices: a document of ten thousand queues does not block the loop. An import takes
the document as a JSON body, or as the field `file` of a form, which is how web pages send files.
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.definitions.exporting import Row, categories, categories_of, document_head
from leveret.definitions.importing import Importer
from leveret.http.framework.bodies import change_response, read_object, vhost_not_found
from leveret.http.framework.operations import (
    Access,
    Operation,
    Query,
    require_current_user,
    whole_body,
)
from leveret.http.framework.permissions import owner_name
from leveret.http.framework.request_parts import node_of, part_of, user_of
from leveret.http.framework.responses import encode_json
from leveret.http.management.policies import wait_for_policies
from leveret.slices import run_in_slices

DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
FORM_FIELDS_MAX: Final = 100  # further fields of a form are not read
_BOUNDARY: Final = re.compile(r'boundary=(?:"([^"]+)"|([^\s;]+))', re.IGNORECASE)
_FILE_FIELD: Final = re.compile(
    rb'^content-disposition:[^\r\n]*[;\s]name="?file"?[;\s]', re.IGNORECASE | re.MULTILINE
)


async def export_all(request: Request) -> Response:
    node = node_of(request)
    lists = categories(node.definitions, node.directory)
    return await _export(request, document_head(node.definitions), lists)


async def export_vhost(request: Request) -> Response:
    node = node_of(request)
    vhost = node.broker.vhosts.get(part_of(request, "vhost"))
    if vhost is None:
        raise HTTPException(400, "vhost_not_found")
    lists = categories_of(node.definitions, vhost)
    return await _export(request, document_head(node.definitions, vhost.name), lists)


async def _export(
    request: Request, head_row: Row, lists: list[tuple[str, Iterator[Row]]]
) -> Response:
    """Return the document, encoded row by row."""
    pieces = [encode_json(head_row)[:-1]]
    for name, rows in lists:
        encoded: list[bytes] = []
        await run_in_slices(_encode_rows(rows, encoded))
        pieces.append(b',"%b":[%b]' % (name.encode(), b",".join(encoded)))
    pieces.append(b"}")
    headers = {"Cache-Control": "no-cache"}
    wanted = request.query_params.get("download")
    if wanted and wanted.isprintable() and wanted.isascii() and '"' not in wanted:
        headers["Content-Disposition"] = f'attachment; filename="{wanted}"'
    return Response(b"".join(pieces), 200, headers, media_type="application/json")


def _encode_rows(rows: Iterator[Row], into: list[bytes]) -> Iterator[None]:
    for row in rows:
        into.append(encode_json(row))
        yield


async def import_all(request: Request) -> Response:
    return await _import(request, None)


async def import_vhost(request: Request) -> Response:
    vhost = part_of(request, "vhost")
    if vhost not in node_of(request).broker.vhosts:
        return vhost_not_found()
    return await _import(request, vhost)


async def _import(request: Request, vhost: str | None) -> Response:
    node = node_of(request)
    data = await whole_body(request, DOCUMENT_BYTES_MAX)
    kind = request.headers.get("content-type", "")
    if kind.lower().startswith("multipart/form-data"):
        data = await asyncio.to_thread(_file_of, kind, data)
    document = read_object(data, "failed_to_parse_json")
    owner = owner_name(user_of(request))
    importer = Importer(node.definitions, node.directory, document, vhost, owner=owner)
    await asyncio.to_thread(importer.hash_passwords)
    await run_in_slices(importer.check())
    await require_current_user(request)
    await run_in_slices(importer.steps(), node.turn)
    await wait_for_policies(node)
    await node.synced()
    return change_response()


def _file_of(kind: str, data: bytes) -> bytes:
    """Return the field `file` of a form."""
    boundary = _BOUNDARY.search(kind)
    if boundary is not None:
        edge = f"\r\n--{boundary[1] or boundary[2]}".encode("latin-1", "replace")
        for part in (b"\r\n" + data).split(edge, FORM_FIELDS_MAX + 1)[1:-1]:
            head, _, payload = part.partition(b"\r\n\r\n")
            if _FILE_FIELD.search(head + b"\r\n"):
                return payload
    raise HTTPException(400, "the form has no field 'file'")


_DOWNLOAD: Final = (Query("download", "file name for a browser that saves the document"),)


def _operations(root: str) -> tuple[Operation, ...]:
    return (
        Operation(
            method="GET",
            path=root,
            handler=export_all,
            summary="Export everything that is defined, as one document.",
            group="definitions",
            access=Access.ADMINISTRATOR,
            query=_DOWNLOAD,
            answer=dict[str, Any],
            is_export=True,
        ),
        Operation(
            method="POST",
            path=root,
            handler=import_all,
            summary="Import a document of definitions: all of it, or nothing if it has a fault.",
            group="definitions",
            access=Access.ADMINISTRATOR,
            body=dict[str, Any],
            body_bytes_max=DOCUMENT_BYTES_MAX,
            status=204,
        ),
        Operation(
            method="GET",
            path=f"{root}/{{vhost}}",
            handler=export_vhost,
            summary="Export everything that is defined in a vhost.",
            group="definitions",
            access=Access.ADMINISTRATOR,
            query=_DOWNLOAD,
            answer=dict[str, Any],
            is_export=True,
        ),
        Operation(
            method="POST",
            path=f"{root}/{{vhost}}",
            handler=import_vhost,
            summary="Import a document of definitions of one vhost.",
            group="definitions",
            access=Access.ADMINISTRATOR,
            body=dict[str, Any],
            body_bytes_max=DOCUMENT_BYTES_MAX,
            status=204,
        ),
    )


OPERATIONS: Final = (*_operations("/api/definitions"), *_operations("/api/all-configuration"))
