"""Permissions: patterns for names and topics, and a cache that follows every change."""

import pytest

from leveret.auth import CONFIGURE, READ, WRITE
from leveret.auth.permissions import DECISIONS_MAX, Permissions
from leveret.engine.broker import Broker
from leveret.errors import PreconditionFailedError


class Stand:
    """Permissions over a register, and who was told of changes."""

    def __init__(self) -> None:
        self.register = Broker(1).register
        self.told: list[str] = []
        self.permissions = Permissions(self.register, self.told.append)

    def again(self) -> Permissions:
        """The same after a restart."""
        permissions = Permissions(self.register, self.told.append)
        permissions.load()
        return permissions


def test_patterns_are_unanchored_and_empty_means_nothing() -> None:
    permissions = Stand().permissions
    assert not permissions.may_open("u", "/")
    assert permissions.put("/", "u", "", "^app-", "log")
    assert permissions.may_open("u", "/")
    assert not permissions.may("u", CONFIGURE, "/", "app-1")
    assert permissions.may("u", WRITE, "/", "app-1")
    assert not permissions.may("u", WRITE, "/", "my-app-1")
    assert permissions.may("u", READ, "/", "catalog")
    assert not permissions.may("u", READ, "other", "catalog")
    assert not permissions.may("v", READ, "/", "catalog")


def test_change_counts_at_once_and_is_told() -> None:
    stand = Stand()
    stand.permissions.put("/", "u", "", "a", "")
    assert stand.permissions.may("u", WRITE, "/", "a")
    assert not stand.permissions.put("/", "u", "", "b", "")
    assert not stand.permissions.may("u", WRITE, "/", "a")
    assert stand.permissions.drop("/", "u")
    assert not stand.permissions.drop("/", "u")
    assert not stand.permissions.may("u", WRITE, "/", "b")
    assert stand.told == ["u", "u", "u"]


def test_everything_is_there_after_a_restart() -> None:
    stand = Stand()
    stand.permissions.put("/", "u", "c", "w", "r")
    stand.permissions.put_topic("/", "u", "amq.topic", "^w", "^r")
    assert stand.again().export() == [
        {"user": "u", "vhost": "/", "configure": "c", "write": "w", "read": "r"}
    ]
    assert stand.again().export_topics() == [
        {"user": "u", "vhost": "/", "exchange": "amq.topic", "write": "^w", "read": "^r"}
    ]
    stand.permissions.drop_user("u")
    assert stand.again().export() == stand.again().export_topics() == []


def test_vhost_takes_its_permissions_along() -> None:
    stand = Stand()
    for vhost in ("/", "v"):
        stand.permissions.put(vhost, "u", ".*", ".*", ".*")
        stand.permissions.put_topic(vhost, "u", "x", "", "")
    stand.permissions.drop_vhost("v")
    assert [row["vhost"] for row in stand.again().export()] == ["/"]
    assert [row["vhost"] for row in stand.again().export_topics()] == ["/"]


def test_topic_without_an_entry_allows_every_key() -> None:
    permissions = Stand().permissions
    assert permissions.may_topic("u", WRITE, "/", "amq.topic", "any.key")
    permissions.put_topic("/", "u", "amq.topic", "^a\\.", "")
    assert permissions.may_topic("u", WRITE, "/", "amq.topic", "a.b")
    assert not permissions.may_topic("u", WRITE, "/", "amq.topic", "b.a")
    assert not permissions.may_topic("u", READ, "/", "amq.topic", "a.b")
    assert permissions.may_topic("u", WRITE, "/", "other", "b.a")
    assert not permissions.may_every_topic("u", WRITE, "/", "amq.topic")
    assert permissions.may_every_topic("u", WRITE, "/", "other")
    assert permissions.drop_topic("/", "u")
    assert permissions.may_topic("u", READ, "/", "amq.topic", "a.b")


def test_variables_stand_for_names_taken_literally() -> None:
    permissions = Stand().permissions
    permissions.put_topic("v", "a.b", "t", "^{vhost}-{username}-", "^{client_id}$")
    assert permissions.may_topic("a.b", WRITE, "v", "t", "v-a.b-1")
    assert not permissions.may_topic("a.b", WRITE, "v", "t", "v-axb-1")
    assert permissions.may_topic("a.b", READ, "v", "t", "c+1", client_id="c+1")
    assert permissions.may_topic("a.b", READ, "v", "t", "{client_id}")


@pytest.mark.parametrize("place", range(3))
def test_bad_pattern_changes_nothing(place: int) -> None:
    stand = Stand()
    patterns = ["a", "b", "c"]
    patterns[place] = "(?=x)"
    with pytest.raises(PreconditionFailedError, match="look-around"):
        stand.permissions.put("/", "u", *patterns)
    with pytest.raises(PreconditionFailedError):
        stand.permissions.put_topic("/", "u", "t", "a", "[")
    assert stand.permissions.export() == stand.permissions.export_topics() == []
    assert stand.told == []


def test_decisions_that_are_kept_are_bounded() -> None:
    permissions = Stand().permissions
    permissions.put("/", "u", "", "^a", "")
    for number in range(DECISIONS_MAX + 10):
        assert permissions.may("u", WRITE, "/", f"a{number}")
    assert len(permissions._decisions["u"]) <= DECISIONS_MAX
