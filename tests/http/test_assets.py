"""The files of the web page: types, security policy, and nothing outside the folder."""

import gzip
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import leveret.http
from leveret.testing.broker import RunningBroker, broker

FOLDER = Path(leveret.http.__file__).parent / "page"
LINES_MAX = 300


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


def ask(
    server: RunningBroker, path: str, headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(server.host, server.http_port, timeout=60)
    connection.request("GET", path, headers=headers or {})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_the_page_needs_no_login_and_runs_nothing_but_its_own_files(server: RunningBroker) -> None:
    response, body = ask(server, "/")
    assert response.status == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"].startswith("default-src 'self';")
    assert response.headers["x-content-type-options"] == "nosniff"
    assert body.startswith(b"<!doctype html>")


@pytest.mark.parametrize(
    ("path", "media"),
    [
        ("main.js", "text/javascript; charset=utf-8"),
        ("views/queue.js", "text/javascript; charset=utf-8"),
        ("style/base.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
def test_files_have_their_types(server: RunningBroker, path: str, media: str) -> None:
    response, body = ask(server, f"/page/{path}")
    assert response.status == 200
    assert response.headers["content-type"] == media
    assert body == (FOLDER / path).read_bytes()


def test_a_file_that_has_not_changed_is_not_sent_again(server: RunningBroker) -> None:
    response, _ = ask(server, "/page/main.js")
    again, body = ask(server, "/page/main.js", {"If-None-Match": response.headers["etag"]})
    assert (again.status, body) == (304, b"")
    assert response.headers["cache-control"] == "no-cache"
    other, _ = ask(server, "/page/dom.js")
    assert other.headers["etag"] != response.headers["etag"]


@pytest.mark.parametrize("path", ["nothing.js", "../assets.py", "%2e%2e/assets.py", "", "views"])
def test_other_paths_are_not_served(server: RunningBroker, path: str) -> None:
    response, _ = ask(server, f"/page/{path}")
    assert response.status == 404


def test_documents_need_no_login(server: RunningBroker) -> None:
    response, body = ask(server, "/manual")
    assert response.status == 200
    names = json.loads(body)
    assert {"README.md", "docs/index.md", "docs/jobs.md", "docs/formats/log.md"} <= set(names)
    response, body = ask(server, "/manual/docs/index.md")
    assert response.status == 200
    assert response.headers["content-type"] == "text/markdown; charset=utf-8"
    assert response.headers["content-security-policy"].startswith("default-src 'self';")
    assert body.startswith(b"# Documents\n")
    again, _ = ask(server, "/manual/docs/index.md", {"If-None-Match": response.headers["etag"]})
    assert again.status == 304


@pytest.mark.parametrize(
    "path", ["", "docs", "docs/nothing.md", "docs/../../app.py", "docs/%2e%2e/%2e%2e/app.py"]
)
def test_nothing_but_documents_is_served_as_one(server: RunningBroker, path: str) -> None:
    response, _ = ask(server, f"/manual/{path}")
    assert response.status == 404


def test_every_import_of_a_module_is_a_file() -> None:
    for path in FOLDER.rglob("*.js"):
        for wanted in re.findall(r'(?:from|import)\s*\(?"(\.[^"]+)"', path.read_text()):
            assert (path.parent / wanted).resolve().is_file(), f"{path.name}: {wanted}"


def test_modules_are_small_and_never_write_html() -> None:
    for path in [*FOLDER.rglob("*.js"), *FOLDER.rglob("*.css")]:
        text = path.read_text()
        assert text.count("\n") <= LINES_MAX, f"{path.name} is two files"
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)


def test_clients_that_accept_gzip_get_less(server: RunningBroker) -> None:
    response, body = ask(server, "/page/main.js", {"Accept-Encoding": "br, gzip;q=0.5"})
    assert response.headers["content-encoding"] == "gzip"
    assert gzip.decompress(body) == (FOLDER / "main.js").read_bytes()
    for refused in ("identity", "gzip; q=0"):
        response, body = ask(server, "/page/main.js", {"Accept-Encoding": refused})
        assert response.headers["content-encoding"] is None
        assert body == (FOLDER / "main.js").read_bytes()
