"""The snapshot of chronicles: queues, their copies and their chronicles at one moment."""

from pathlib import Path

import pika
import pytest

from leveret.auth.user_directory import DirectoryUser
from tests.http.asking import ask
from tests.http.test_leases import channel, serving, take

PATH = "/api/chronicles/%2F"


def test_snapshot_has_every_copy_by_state_and_the_end_of_its_chronicle(tmp_path: Path) -> None:
    with serving(tmp_path) as url, channel(url) as opened:
        opened.exchange_declare("x", "fanout", arguments={"x-remember": "lives"})
        opened.queue_declare("q", durable=True, arguments={"x-remember": "lives"})
        for number in range(10):
            kept = pika.BasicProperties(delivery_mode=2)
            opened.basic_publish("", "q", b"%d" % number, kept)
        opened.basic_publish("", "q", b"transient, and last")
        take(url, 1, 2)
        opened.basic_get("q")
        status, found = ask(url, "GET", PATH)
        assert status == 200
        (queue,) = found["queues"]
        assert (queue["name"], queue["stream"], queue["declared"]) == ("q", "lives", True)
        assert queue["ready"] == [[3, 10]]
        assert [held[:2] for held in queue["unacked"]] in ([[0, 2]], [[0, 1], [2, 2]])
        assert found["exchanges"] == [{"name": "x", "stream": "lives"}]
        (stream,) = found["streams"]
        assert (stream["first_offset"], stream["end_offset"]) == (0, 14)
        assert ask(url, "GET", "/api/streams/%2F/lives")[1]["end_offset"] == 14
        _, seen = ask(url, "GET", "/api/queues/%2F/q/peek")
        assert int(seen[0]["id"]) == (queue["id"] << 40) + 3


def test_only_queues_that_remember_can_be_named(tmp_path: Path) -> None:
    with serving(tmp_path) as url, channel(url) as opened:
        opened.queue_declare("plain")
        opened.queue_declare("q", arguments={"x-remember": "lives"})
        _, found = ask(url, "GET", f"{PATH}?queue=q&queue=q")
        assert [queue["name"] for queue in found["queues"]] == ["q"]
        assert ask(url, "GET", f"{PATH}?queue=plain")[0] == 404
        assert ask(url, "GET", f"{PATH}?queue=lives")[0] == 404
        assert ask(url, "GET", f"{PATH}?queue=nothing")[0] == 404


def test_permissions_of_queues_that_remember_nothing_are_not_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vhost may have 100,000 of them, and nobody else is served meanwhile."""
    asked: list[str] = []

    def note(user: DirectoryUser, permission: str, vhost: str, what: str, name: str) -> bool:
        asked.append(name)
        return True

    with serving(tmp_path) as url, channel(url) as opened:
        opened.queue_declare("plain")
        opened.queue_declare("q", arguments={"x-remember": "lives"})
        monkeypatch.setattr(DirectoryUser, "may", note)
        assert len(ask(url, "GET", PATH)[1]["queues"]) == 1
    assert asked == ["q"]
