"""Parse the parameters `federation-upstream` and `federation-upstream-set`, and find upstreams.

    federation-upstream       name   {"uri": text or list, "max-hops": 1, …}
    federation-upstream-set   name   [{"upstream": name, …}, …]; it may change all keys but the uri

The set `all` has all upstreams of the vhost, and need not be defined. A policy names one upstream,
a set, or a pattern for names of upstreams. The keys and defaults are RabbitMQ's.

An address without a login is stored, because exports of RabbitMQ have them, but no link uses it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from leveret.amqp_client.uri import AddressError, hide_secrets, parse_amqp_uri
from leveret.definitions import checks
from leveret.errors import PreconditionFailedError
from leveret.patterns import Pattern
from leveret.shovels.settings import ACK_MODES, ON_CONFIRM, PREFETCH_MAX, URIS_MAX
from leveret.wire.tables import Table

UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
UPSTREAM_PATTERN: Final = "federation-upstream-pattern"
POLICY_KEYS: Final = (UPSTREAM, UPSTREAM_SET, UPSTREAM_PATTERN)
ALL: Final = "all"

Lookup = Callable[[str, str], object | None]  # takes component and name

RECONNECT_S: Final = 5.0
RECONNECT_MIN_S: Final = 0.1
HOPS_MAX: Final = 1000
NUMBER_MAX: Final = 1 << 32  # limit for times in milliseconds
NAME_BYTES_MAX: Final = 255
_NEEDED: Final = ("upstream",)


@dataclass(frozen=True)
class Upstream:
    """One upstream, as one exchange or queue uses it."""

    name: str
    uris: tuple[str, ...]
    exchange: str | None  # None: the name of the local exchange
    queue: str | None  # None: the name of the local queue
    consumer_tag: str
    prefetch: int
    reconnect_s: float
    hops_max: int
    expires_ms: int | None
    message_ttl_ms: int | None
    ack_mode: str
    trusts_user_id: bool
    queue_type: str
    cleans_up: bool  # delete the queue of an exchange link with the link


def _text_fault(name: str, value: object) -> str:
    if isinstance(value, str) and len(value.encode("utf-8", "replace")) <= NAME_BYTES_MAX:
        return ""
    return f"{name} should be a text of at most {NAME_BYTES_MAX} bytes"


def _flag_fault(name: str, value: object) -> str:
    return "" if isinstance(value, bool) else f"{name} should be true or false"


def _range_check(least: float, most: float) -> checks.Check:
    def fault(name: str, value: object) -> str:
        found = checks.number_fault(name, value)
        if found:
            return found
        assert isinstance(value, int | float)
        return "" if least <= value <= most else f"{name} should be from {least:g} to {most:g}"

    return fault


def _choice_check(*choices: str) -> checks.Check:
    def fault(name: str, value: object) -> str:
        return "" if value in choices else f"{name} should be one of {', '.join(choices)}"

    return fault


def _uri_fault(name: str, value: object) -> str:
    texts = value if isinstance(value, list) else [value]
    if not 0 < len(texts) <= URIS_MAX:
        return f"{name} should be an address, or a list of at most {URIS_MAX} addresses"
    for text in texts:
        if not isinstance(text, str):
            return f"{name} should be an address, or a list of addresses"
        try:
            parse_amqp_uri(text, "/")
        except AddressError as fault:
            return str(fault)
    return ""


_KEYS: Final[dict[str, checks.Check]] = {
    "exchange": _text_fault,
    "queue": _text_fault,
    "consumer-tag": _text_fault,
    "prefetch-count": _range_check(1, PREFETCH_MAX),
    "reconnect-delay": _range_check(0, 86_400),
    "max-hops": _range_check(1, HOPS_MAX),
    "expires": _range_check(1, NUMBER_MAX),
    "message-ttl": _range_check(0, NUMBER_MAX),
    "trust-user-id": _flag_fault,
    "ack-mode": _choice_check(*ACK_MODES),
    "resource-cleanup-mode": _choice_check("default", "never"),
    "queue-type": _choice_check("classic", "quorum"),
    "bind-nowait": _flag_fault,
    "channel-use-mode": _choice_check("multiple", "single"),
}


def upstream_faults(vhost: str, name: str, value: object) -> list[str]:
    """Return the faults of a parameter `federation-upstream`."""
    return checks.object_faults(name, value, {"uri": _uri_fault, **_KEYS}, ("uri",))


def set_faults(vhost: str, name: str, value: object) -> list[str]:
    """Return the faults of a parameter `federation-upstream-set`."""
    if not isinstance(value, list):
        return [f"{name} not a list {checks.erlang_term(value)}"]
    known = {"upstream": _text_fault, **_KEYS}
    return [fault for each in value for fault in checks.object_faults(name, each, known, _NEEDED)]


def upstreams_of(policy: Table, names: list[str], find: Lookup) -> list[Upstream]:
    """Return the upstreams that a policy names, of all `names` in the vhost."""
    elements: list[Mapping[str, Any]] = []
    if UPSTREAM in policy:
        elements = [{"upstream": str(policy[UPSTREAM].value)}]
    elif UPSTREAM_SET in policy:
        elements = _upstreams_of_set(str(policy[UPSTREAM_SET].value), names, find)
    elif UPSTREAM_PATTERN in policy:
        elements = _matching(str(policy[UPSTREAM_PATTERN].value), names)
    found: dict[str, Upstream] = {}
    for element in elements:
        value = find(UPSTREAM, str(element["upstream"]))
        if isinstance(value, dict):
            upstream = _merged(str(element["upstream"]), {**value, **element})
            found.setdefault(upstream.name, upstream)
    return list(found.values())


def _upstreams_of_set(name: str, names: list[str], find: Lookup) -> list[Mapping[str, Any]]:
    elements = find(UPSTREAM_SET, name)
    if isinstance(elements, list):
        return [each for each in elements if isinstance(each, dict)]
    return [{"upstream": each} for each in names] if name == ALL else []


def _matching(text: str, names: list[str]) -> list[Mapping[str, Any]]:
    try:
        pattern = Pattern(text)
    except PreconditionFailedError:  # a definition file may hold it: it matches no upstream
        return []
    return [{"upstream": name} for name in names if pattern.matches(name)]


def _merged(name: str, value: Mapping[str, Any]) -> Upstream:
    uris = value.get("uri", ())
    return Upstream(
        name=name,
        uris=(uris,) if isinstance(uris, str) else tuple(uris),
        exchange=value.get("exchange") or None,
        queue=value.get("queue") or None,
        consumer_tag=value.get("consumer-tag") or f"federation-link-{name}",
        prefetch=int(value.get("prefetch-count", 1000)),
        reconnect_s=max(float(value.get("reconnect-delay", RECONNECT_S)), RECONNECT_MIN_S),
        hops_max=int(value.get("max-hops", 1)),
        expires_ms=_maybe_int(value.get("expires")),
        message_ttl_ms=_maybe_int(value.get("message-ttl")),
        ack_mode=value.get("ack-mode", ON_CONFIRM),
        trusts_user_id=bool(value.get("trust-user-id", False)),
        queue_type=value.get("queue-type", "classic"),
        cleans_up=value.get("resource-cleanup-mode") != "never",
    )


def _maybe_int(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def shown_uri(text: str) -> str:
    """Return an address without its login and its query, for headers and for the status."""
    shown = hide_secrets(text)
    scheme, separator, rest = shown.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
