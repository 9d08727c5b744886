"""Serve the files of the web page at `/`.

The files under `page` are plain HTML, CSS and ES modules; nothing is built. They are read once,
when this module is imported in the front's helper thread, and answered from memory. A name that is
not among them answers 404, so no path can lead out of the folder. Browsers ask again each time and
get 304 while a file is unchanged. The security policy of the responses allows scripts, styles and
calls from this broker only, and no scripts inside HTML.
"""

import gzip
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leveret.http.framework import compression
from leveret.http.framework.compression import accepts_gzip
from leveret.http.framework.operations import Access, Operation

_FOLDER: Final = Path(__file__).parent.parent / "page"
# The type tables of some systems are wrong, and browsers load modules only with the right type.
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


class Asset(msgspec.Struct, frozen=True):
    """One file of the page."""

    content: bytes
    packed: bytes  # the content as gzip
    media: str
    etag: str


def _read(folder: Path) -> dict[str, Asset]:
    """Return every file of the page, by its path inside the folder."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES)
    return {path.relative_to(folder).as_posix(): read_asset(path) for path in found}


def read_asset(path: Path) -> Asset:
    """Return a file as it is answered."""
    content = path.read_bytes()
    packed = gzip.compress(content, mtime=0)
    return Asset(content, packed, _TYPES[path.suffix], f'"{sha256(content).hexdigest()[:20]}"')


ASSETS: Final = _read(_FOLDER)


async def get_page(request: Request) -> Response:
    return _answer(request, "index.html")


async def get_asset(request: Request) -> Response:
    return _answer(request, request.path_params["path"])


def _answer(request: Request, path: str) -> Response:
    asset = ASSETS.get(path)
    if asset is None:
        raise HTTPException(404, "Not Found")
    return answer_asset(request, asset)


def answer_asset(request: Request, asset: Asset) -> Response:
    """Return the response with a file: 304 if the browser has it, and compressed if it can be."""
    headers = {**_HEADERS, "ETag": asset.etag}
    if asset.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if accepts_gzip(request):
        return Response(asset.packed, 200, {**headers, **compression.HEADERS}, asset.media)
    return Response(asset.content, headers=headers, media_type=asset.media)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/",
        handler=get_page,
        summary="Return the web page for people.",
        group="page",
        access=Access.PUBLIC,
        media="text/html",
    ),
    Operation(
        method="GET",
        path="/page/{path:path}",
        handler=get_asset,
        summary="Return a file of the web page.",
        group="page",
        access=Access.PUBLIC,
        media="*/*",
    ),
)
