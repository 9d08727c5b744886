"""The settings of one node: every option, declared once.

`Settings` is frozen and complete: each field has a default, so `Settings()` is a working broker and
tests name only what they change. The name of a field is the key in the file; `LEVERET_` and
capitals make the name in the environment; dashes make the flag. Field types are what `Option.read`
returns.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from leveret.config.option import Option, Secret

_KINDS: Final = {bool: "bool", int: "int", float: "float", str: "str", Secret: "str"}
_MEBIBYTE: Final = 1024 * 1024


def _option(default: Any, help: str, *, kind: str = "", **facts: Any) -> Any:
    """A field of Settings that carries its Option; one without a default names its kind."""
    kind = kind or _KINDS.get(type(default), "path")
    option = Option(kind=kind, help=help, secret=isinstance(default, Secret), **facts)
    return field(default=default, metadata={"option": option})


def _port(default: int | None, help: str) -> Any:
    help += " 0 picks a free one."
    return _option(default, help, kind="int", low=0, high=65535, metavar="PORT")


def _file(help: str) -> Any:
    return _option(None, help, kind="path", metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set; the help text of each option says what it does."""

    data: Path = _option(
        Path("leveret-data"), "Directory of everything that outlives the process.", metavar="DIR"
    )
    durability: str = _option(
        "sync",
        "When a message counts as safe: sync, when the disk has it; os, when the operating system"
        " has it, so that a loss of power loses confirmed messages. Nothing but this name turns"
        " syncs off.",
        choices=("sync", "os"),
    )
    disk_free_min: int = _option(
        50 * _MEBIBYTE,
        "Free space on the disk of the data directory below which publishers are blocked.",
        unit="bytes",
        low=0,
    )
    host: str = _option(
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 is all of IPv4, :: all of IPv6 and IPv4 (where the system"
        " cannot do both with one socket: IPv6). One that other machines can reach needs a"
        " password: default_pass.",
        pattern=r"\S+",
        metavar="HOST",
    )
    amqp_port: int = _port(5672, "Port for AMQP clients.")
    http_port: int = _port(15672, "Port for the HTTP API and the page.")
    amqps_port: int | None = _port(
        None, "Port for AMQP clients over TLS, 5671 by custom; without it there is none."
    )
    https_port: int | None = _port(
        None, "Port for the HTTP API over TLS, 15671 by custom; without it there is none."
    )
    tls_cert: Path | None = _file(
        "Certificate of this node and those that lead to its authority, as PEM."
    )
    tls_key: Path | None = _file("Its private key, as PEM; without it, it is in tls_cert.")
    tls_key_pass: Secret = _option(Secret(""), "Password of the key.", metavar="PASSWORD")
    tls_version_min: str = _option("1.2", "Oldest version of TLS.", choices=("1.2", "1.3"))
    tls_ca: Path | None = _file("Authorities whose client certificates are trusted, as PEM.")
    tls_verify: str = _option(
        "none",
        "Whether AMQP clients over TLS show a certificate: none, they are not asked; optional, one"
        " that is shown must be trusted; required, all must show a trusted one.",
        choices=("none", "optional", "required"),
    )
    tls_login_from: str = _option(
        "distinguished_name",
        "What of its certificate is the name of a client that logs in by EXTERNAL.",
        choices=("distinguished_name", "common_name", "subject_alternative_name"),
    )
    tls_login_san_type: str = _option(
        "dns",
        "Which kind of subject alternative name that is; the first of the kind counts.",
        choices=("dns", "email", "uri", "ip"),
    )
    node: str = _option(
        "leveret", "Name of this node.", pattern=r"[A-Za-z0-9_.@-]{1,255}", metavar="NAME"
    )
    cluster_listen: str = _option(
        "",
        "Address for the other nodes of a cluster. Nodes cannot be joined yet: it is refused.",
        metavar="HOST:PORT",
    )
    cluster_peers: str = _option(
        "",
        "The nodes of the cluster, separated by commas. Refused as well.",
        metavar="NAME=HOST:PORT,…",
    )
    default_user: str = _option(
        "guest",
        "User that the first start makes, an administrator.",
        pattern=r".{1,255}",
        metavar="NAME",
    )
    default_pass: Secret = _option(
        Secret("guest"),
        "Password of that user. Set one to listen on other addresses than this machine's own.",
        pattern=r"(?s).{1,255}",
        metavar="PASSWORD",
    )
    login_failures_max: int = _option(
        10,
        "Failed logins of one user from one address before further ones must wait, longer with each"
        " failure; ten times as many for all users of an address. 0 turns this off.",
        low=0,
        high=1_000_000,
    )
    connections_max: int = _option(
        0, "Most AMQP connections that are open at once; 0 sets no limit.", low=0, high=10_000_000
    )
    load_definitions: str = _option(
        "",
        "File of definitions (JSON, as exported by RabbitMQ or by this) to take in at every start.",
        metavar="FILE",
    )
    oauth2_resource_server_id: str = _option(
        "",
        "Name of this broker in OAuth2 tokens; with it, tokens are taken as passwords and as"
        " bearers.",
        metavar="NAME",
    )
    oauth2_audience: str = _option(
        "", "Audience that a token must name; else the resource server id.", metavar="NAME"
    )
    oauth2_issuer: str = _option("", "Issuer that a token must name; else any.", metavar="URL")
    oauth2_algorithms: str = _option(
        "RS256,ES256,HS256",
        "Algorithms of signatures that are taken, each by keys of its own kind only.",
        pattern=r"[A-Za-z0-9]+(,[A-Za-z0-9]+)*",
        metavar="NAME,…",
    )
    oauth2_secret: Secret = _option(
        Secret(""), "Secret of HS256 tokens, 32 characters or more.", metavar="SECRET"
    )
    oauth2_keys: str = _option(
        "",
        "Public keys of RS256 and ES256 tokens: files with PEM, each with the key id it is for, or"
        " without one.",
        metavar="[KID=]FILE,…",
    )
    oauth2_jwks_file: Path | None = _file("Public keys as a JSON Web Key Set.")
    oauth2_jwks_url: str = _option(
        "",
        "Where to fetch a JSON Web Key Set: at the start, every five minutes, and for an unknown"
        " key.",
        pattern=r"https://\S+|http://(localhost|127\.0\.0\.1|\[::1\])[:/]\S*|",
        metavar="https://…",
    )
    oauth2_leeway_s: int = _option(
        0, "By how much the clock of the issuer may be off.", unit="s", low=0, high=600
    )
    oauth2_username_claims: str = _option(
        "sub,client_id", "The first of these that a token has is the user.", metavar="CLAIM,…"
    )
    oauth2_scope_prefix: str | None = _option(
        None,
        "What scopes for this broker begin with; else the resource server id and a dot.",
        kind="str",
        metavar="TEXT",
    )
    oauth2_scope_claims: str = _option(
        "",
        "Claims that hold scopes besides scope; dots lead into objects: realm_access.roles.",
        metavar="CLAIM,…",
    )
    oauth2_scope_aliases: str = _option(
        "",
        "Scopes that stand for others, with spaces between these.",
        metavar="ALIAS=SCOPE…;…",
    )
    jobs_token_secret: Secret = _option(
        Secret(""),
        "Secret of the HS256 tokens of the jobs service, 32 characters or more; without it and a"
        " key, one is made in the data directory.",
        metavar="SECRET",
    )
    jobs_token_key: Path | None = _file(
        "Public key of the RS256 or ES256 tokens of the jobs service, as PEM."
    )
    jobs_rate: int = _option(
        0,
        "Most jobs that a namespace may put in each second; 0 sets no limit.",
        low=0,
        high=100_000_000,
    )
    jobs_redis: Secret = _option(
        Secret(""),
        "Redis of the jobs service; with it and shards, jobs are kept there and not in the broker.",
        metavar="URL",
    )
    jobs_postgres: Secret = _option(
        Secret(""),
        "PostgreSQL database of the jobs service; one for each shard, always in the same order.",
        metavar="DSN",
        repeats=True,
    )
    jobs_sync: str = _option(
        "interval",
        "When the local log of jobs on Redis and PostgreSQL is synced: always, before each answer;"
        " interval, every few milliseconds, as Redis has the second copy; never.",
        choices=("always", "interval", "never"),
    )
    jobs_slow_mode: bool = _option(
        False, "While Redis is down, write jobs to PostgreSQL instead of refusing them."
    )
    handshake_timeout_ms: int = _option(
        10_000, "A client must have logged in after this time.", unit="ms", low=1, high=600_000
    )
    heartbeat_s: int = _option(
        60, "Heartbeat interval offered to clients; 0 offers none.", unit="s", low=0, high=65535
    )
    frame_max: int = _option(
        131_072, "Largest frame offered to clients.", unit="bytes", low=4096, high=2**31 - 1
    )
    channel_max: int = _option(
        2047, "Most channels of one connection offered to clients.", low=1, high=65535
    )
    message_bytes_max: int = _option(
        128 * _MEBIBYTE, "Largest message body.", unit="bytes", low=1, high=512 * _MEBIBYTE
    )
    memory_high: float = _option(
        0.6,
        "Memory of messages above which publishers are blocked: a share of what the process may use"
        " when at most 1, otherwise bytes.",
        unit="share or bytes",
        low=0.01,
        metavar="SHARE|BYTES",
    )
    consumer_timeout_ms: int = _option(
        1_800_000,
        "A consumer of a quorum queue that holds a message unacknowledged for this long is"
        " cancelled, and the message goes back; 0 turns this off. Other queues have a timeout where"
        " x-consumer-timeout or a policy gives them one.",
        unit="ms",
        low=0,
        high=2**31 - 1,
    )
    park_over_limit: bool = _option(
        True,
        "A message over its delivery limit that has no dead-letter exchange goes to the queue"
        " leveret.parked; false drops it, as RabbitMQ does.",
    )
    event_loop: str = _option(
        "auto",
        "Event loop to run on; auto takes uvloop where it is installed.",
        choices=("auto", "uvloop", "asyncio"),
    )
    log_level: str = _option(
        "info", "Least level that is logged.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _option(
        "text",
        "Form of the log on stderr: text is key=value, json an object in each line.",
        choices=("text", "json"),
    )
    metrics_login: str = _option(
        "remote",
        "Who must log in to read /metrics: remote, everybody but this machine; always; never, as"
        " with RabbitMQ. Any user with the tag monitoring or administrator may.",
        choices=("remote", "always", "never"),
    )
    otel_endpoint: str = _option(
        "",
        "Where spans of messages with a sampled traceparent are sent, by OTLP over HTTP; empty"
        " sends none. Needs the extra leveret[otel].",
        pattern=r"(https?://\S+)?",
        metavar="URL",
    )


def options() -> dict[str, Option]:
    """Every option by the name of its field, in the order of declaration."""
    return {f.name: f.metadata["option"] for f in fields(Settings)}


def env_name(name: str) -> str:
    return "LEVERET_" + name.upper()


def flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def memory_high_bytes(memory_high: float, machine_bytes: int) -> int:
    """The limit in bytes: a setting of at most 1 is a share of the machine's memory."""
    return int(memory_high * machine_bytes if memory_high <= 1 else memory_high)
