"""Scopes: patterns, variables, tags, and what each allows."""

import pytest

from leveret.auth.scopes import SCOPES_MAX, Scopes, WildcardPattern, without_prefix


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("*", "", True),
        ("*", "anything", True),
        ("", "", True),
        ("", "x", False),
        ("ab", "ab", True),
        ("ab", "abc", False),
        ("a*", "abc", True),
        ("*c", "abc", True),
        ("*c", "cc", True),
        ("a*c", "abc", True),
        ("a*c", "ac", True),
        ("a*a", "a", False),
        ("*b*", "abc", True),
        ("*b*b*", "abc", False),
        ("a**c", "abc", True),
        ("a*b*c", "a-b-b-c", True),
        ("%2F", "/", True),
        ("%2A", "*", True),
        ("%2A", "x", False),
        ("a+b", "a b", True),
        ("ü*", "üx", True),
        (".*", "x", False),
    ],
)
def test_star_matches_any_text_and_other_characters_match_themselves(
    pattern: str, text: str, fits: bool
) -> None:
    assert WildcardPattern(pattern).matches(text) is fits


def test_many_stars_take_no_time() -> None:
    assert not WildcardPattern("*a" * 5000).matches("a" * 4999 + "b")


@pytest.mark.parametrize(
    ("scope", "permission", "vhost", "name", "allowed"),
    [
        ("read:*/*", "read", "/", "q", True),
        ("read:*/*", "write", "/", "q", False),
        ("read:*/*", "configure", "/", "q", False),
        ("write:%2F/orders-*", "write", "/", "orders-1", True),
        ("write:%2F/orders-*", "write", "/", "order", False),
        ("write:%2F/orders-*", "write", "other", "orders-1", False),
        ("configure:a/b/c", "configure", "a", "b", True),
        ("configure:a", "configure", "a", "b", False),
        ("configure:a/b/c/d", "configure", "a", "b", False),
        ("read:%2/q", "read", "%2", "q", False),
        ("Read:*/*", "read", "/", "q", False),
        ("read:{vhost}/q", "read", "any", "q", True),
        ("read:{vhost}/{vhost}-*", "read", "v", "v-1", True),
        ("read:{vhost}/{vhost}-*", "read", "v", "w-1", False),
        ("read:*/{sub}-*", "read", "/", "hare-1", True),
        ("read:*/{sub}-*", "read", "/", "fox-1", False),
        ("read:*/{star}", "read", "/", "anything", False),
        ("read:*/{star}", "read", "/", "*", True),
        ("read:*/{number}", "read", "/", "{number}", True),
    ],
)
def test_scope_allows_its_permission_on_matching_names_only(
    scope: str, permission: str, vhost: str, name: str, allowed: bool
) -> None:
    scopes = Scopes([scope], {"sub": "hare", "star": "*", "number": 5})
    assert scopes.may(permission, vhost, name) is allowed


def test_vhost_is_open_for_whoever_has_a_scope_in_it() -> None:
    scopes = Scopes(["read:a*/q", "tag:management"], {})
    assert scopes.may_open("a1")
    assert not scopes.may_open("b")
    assert not Scopes(["tag:administrator"], {}).may_open("/")


def test_routing_key_needs_a_part_of_its_own() -> None:
    plain = Scopes(["write:*/topics"], {})
    assert plain.may("write", "/", "topics")
    assert not plain.may_topic("write", "/", "topics", "a.b")
    keyed = Scopes(["write:*/topics/a.*"], {})
    assert keyed.may("write", "/", "topics")
    assert keyed.may_topic("write", "/", "topics", "a.b")
    assert not keyed.may_topic("write", "/", "topics", "b.a")
    assert not keyed.may_topic("read", "/", "topics", "a.b")
    assert not keyed.may_topic("write", "/", "other", "a.b")


def test_every_key_of_a_topic_exchange_needs_a_star_alone() -> None:
    found = Scopes(["write:*/a", "write:*/b/a*", "write:*/c/*", "write:*/d/**", "read:*/e/*"], {})
    may = [name for name in "abcde" if found.may_every_topic("write", "/", name)]
    assert may == ["c", "d"]


def test_tags_are_scopes_too() -> None:
    assert Scopes(["tag:management", "read:*/*", "tag:x"], {}).tags == ("management", "x")


def test_scopes_of_others_are_left_out() -> None:
    scopes = ["broker.read:*/*", "other.write:*/*", "broker.tag:monitoring", "openid"]
    assert without_prefix(scopes, "broker.") == ["read:*/*", "tag:monitoring"]
    assert without_prefix(scopes, "") == scopes


def test_number_of_scopes_is_limited() -> None:
    scopes = Scopes([*(f"read:*/q{n}" for n in range(SCOPES_MAX)), "read:*/late"], {})
    assert scopes.may("read", "/", f"q{SCOPES_MAX - 1}")
    assert not scopes.may("read", "/", "late")


def test_many_vhosts_are_asked_without_end() -> None:
    scopes = Scopes(["read:{vhost}/q"], {})
    assert all(scopes.may("read", f"v{n}", "q") for n in range(1000))
