"""Serve the documents, so that a user who has only the installed package can read them.

`http/manual` links to the documents of the repository, and a wheel contains copies of them. They
are Markdown; the page shows them (`page/views/manual.js`). Names that are not in the list answer
404, so no path can lead out of the folder. A document is read when it is asked for first.
"""

from functools import cache
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.http.framework.assets import Asset, answer_asset, read_asset
from leveret.http.framework.operations import Access, Operation
from leveret.http.framework.responses import json_response

_FOLDER: Final = Path(__file__).parent.parent / "manual"
# `**` would not follow the link to the folder of documents.
DOCUMENTS: Final = tuple(
    sorted(
        path.relative_to(_FOLDER).as_posix()
        for pattern in ("*.md", "docs/*.md", "docs/*/*.md")
        for path in _FOLDER.glob(pattern)
    )
)


@cache
def _document(name: str) -> Asset:
    return read_asset(_FOLDER / name)


async def list_documents(request: Request) -> Response:
    return json_response(DOCUMENTS)


async def get_document(request: Request) -> Response:
    name = request.path_params["path"]
    if name not in DOCUMENTS:
        raise HTTPException(404, "Not Found")
    return answer_asset(request, _document(name))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/manual",
        handler=list_documents,
        summary="List the documents.",
        group="page",
        access=Access.PUBLIC,
        answer=list[str],
    ),
    Operation(
        method="GET",
        path="/manual/{path:path}",
        handler=get_document,
        summary="Return a document as Markdown.",
        group="page",
        access=Access.PUBLIC,
        media="text/markdown",
    ),
)
