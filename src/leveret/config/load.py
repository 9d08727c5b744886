"""Loads the settings. Flags override the environment, and the environment overrides the TOML file.

Every source is read to its end before faults are reported, so that a user sees all faults at once,
each with its place. Unknown keys in the file and unknown LEVERET_… variables are faults, because a
misspelt option that is silently ignored costs hours. Variables of Leveret's other commands are
allowed, and so are variables that an orchestrator sets for a service of the name "leveret".
"""

import re
from collections.abc import Iterable, Mapping, Set
from ipaddress import ip_network
from pathlib import Path

from leveret.config.settings import Settings, env_name, flag_name, options
from leveret.errors import ConfigError

CONFIG_ENV = "LEVERET_CONFIG"
# Variables that other commands, clients and the build read.
OTHER_VARIABLES = frozenset(
    {
        CONFIG_ENV,
        "LEVERET_AMQP_URL",
        "LEVERET_BUILD_PROGRESS",
        "LEVERET_JOBS_NAMESPACE",
        "LEVERET_JOBS_TOKEN",
        "LEVERET_LAKE",
        "LEVERET_PASSWORD",
        "LEVERET_PURE",
        "LEVERET_SPARK_MASTER",
        "LEVERET_URL",
        "LEVERET_USER",
    }
)
FOREIGN_VARIABLES = ("LEVERET_APP_", "LEVERET_TEST_")  # for applications beside the broker
# Kubernetes: LEVERET_SERVICE_HOST, LEVERET_PORT_5672_TCP_ADDR, LEVERET_AMQP_SERVICE_PORT …
_SERVICE_VARIABLE = re.compile(
    r"LEVERET_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)"
)
PROXY_OPTIONS = ("amqp_trusted_proxies", "http_trusted_proxies")
PORT_MAX = 65_535
SECRET_CHARACTERS_MIN = 32  # RFC 7518: a secret is at least as long as its hash


def load(
    flags: Mapping[str, object], env: Mapping[str, str], config_file: str | None = None
) -> Settings:
    """Return the settings from all three sources; raise ConfigError with every fault.

    `flags` holds the options from the command line by name. The file is `config_file`, or the file
    that LEVERET_CONFIG names, or none.
    """
    faults: list[str] = []
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    path = config_file or env.get(CONFIG_ENV)
    if path:
        _read_file(Path(path), values, places, faults)
    for name in options():
        if env_name(name) in env:
            places[name] = env_name(name)
            _read(name, env[env_name(name)], places[name], values, faults)
    faults += _unknown_variables(env)
    for name, raw in flags.items():
        places[name] = flag_name(name)
        _read(name, raw, places[name], values, faults)
    # Option.read gives the field's type.
    settings = Settings(**values, places=places)  # type: ignore[arg-type]
    broken = places.keys() - values.keys()  # a fault of their own is reported already
    faults += [settings.placed(text) for text in _faults_together(settings, broken)]
    if faults:
        raise ConfigError("\n".join(faults))
    return settings


def _unknown_variables(env: Mapping[str, str]) -> list[str]:
    """Return a fault for each LEVERET_ variable that is not an option."""
    known = {env_name(name) for name in options()}
    faults = []
    for name in env:
        if not name.startswith("LEVERET_") or name in known or name in OTHER_VARIABLES:
            continue
        if name.startswith(FOREIGN_VARIABLES) or _SERVICE_VARIABLE.fullmatch(name):
            continue
        # Compare without the common prefix, which makes all names similar.
        near = _nearest(name.removeprefix("LEVERET_"), (k.removeprefix("LEVERET_") for k in known))
        faults.append(f"{name}: no such option{near.replace('mean ', 'mean LEVERET_')}")
    return faults


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # importing it takes time, and most starts have no fault

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _read_file(
    path: Path, values: dict[str, object], places: dict[str, str], faults: list[str]
) -> None:
    import tomllib  # importing it takes 8 ms, and most starts have no file

    try:
        text = path.read_text()
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "it is not text"
        faults.append(f"{path}: cannot be read: {reason}")
        return
    except tomllib.TOMLDecodeError as fault:
        faults.append(f"{path}: is not TOML: {fault}")
        return
    except RecursionError:
        faults.append(f"{path}: is nested too deep")
        return
    for key, raw in table.items():
        if key in options():
            places[key] = f"{_place(path, text, key)}: {key}"
            _read(key, raw, places[key], values, faults)
        else:
            hint = _nearest(key, options())
            faults.append(f"{_place(path, text, key)}: {key}: no such option{hint}")


def _place(path: Path, text: str, key: str) -> str:
    """Return the file and the line in which a key stands."""
    pattern = re.compile(rf"""\s*\[*\s*(["']?){re.escape(key)}\1\s*[\].=]""")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return f"{path}:{number}"
    return str(path)


def _read(name: str, raw: object, place: str, values: dict[str, object], faults: list[str]) -> None:
    try:
        values[name] = options()[name].read(raw)
    except ValueError as fault:
        faults.append(f"{place}: {fault}")


def _faults_together(settings: Settings, broken: Set[str]) -> list[str]:
    """Return faults that concern several options together.

    `broken` are options whose own faults are reported. Options that depend on them are not checked.
    """
    checks = {
        "amqp_port http_port amqps_port https_port": _port_faults,
        "amqps_port https_port tls_cert tls_ca tls_verify": _tls_faults,
        "oauth2_resource_server_id oauth2_secret oauth2_keys oauth2_jwks_file oauth2_jwks_url": (
            _oauth2_faults
        ),
        " ".join(PROXY_OPTIONS): _proxy_faults,
        "node durability tls_cert tls_ca cluster_listen cluster_peers cluster_secret"
        " cluster_secret_file cluster_tls": _cluster_faults,
        "jobs_redis jobs_postgres": _jobs_faults,
    }
    found = (find(settings) for names, find in checks.items() if not broken & set(names.split()))
    return [fault for faults in found for fault in faults]


def _port_faults(settings: Settings) -> list[str]:
    faults = []
    seen: dict[int, str] = {}
    for name in ("amqp_port", "http_port", "amqps_port", "https_port"):
        port = getattr(settings, name)
        if not port:
            continue
        if port in seen:
            faults.append(f"{seen[port]} and {name}: both use port {port}: change one of them")
        seen.setdefault(port, name)
    return faults


def _tls_faults(settings: Settings) -> list[str]:
    faults = []
    listens = settings.amqps_port is not None or settings.https_port is not None
    if listens and settings.tls_cert is None:
        faults.append("tls_cert: a TLS port needs a certificate: name its file here")
    if settings.tls_verify != "none" and settings.tls_ca is None:
        faults.append("tls_ca: client certificates cannot be verified without it: name a file here")
    return faults


def _cluster_faults(settings: Settings) -> list[str]:
    if not settings.cluster_listen:
        given = [
            name
            for name in ("cluster_peers", "cluster_secret", "cluster_secret_file", "cluster_tls")
            if getattr(settings, name)
        ]
        return [f"{name}: needs cluster_listen" for name in given]
    faults = _port_of_address_faults("cluster_listen", settings.cluster_listen)
    names = [peer.partition("=")[0] for peer in settings.cluster_peers.split(",")]
    for peer in filter(None, settings.cluster_peers.split(",")):
        faults += _port_of_address_faults("cluster_peers", peer.partition("=")[2])
    if settings.node not in names:
        faults.append(
            f"cluster_peers: '{settings.cluster_peers}' does not name this node, {settings.node}:"
            " add it, or give this node one of these names (--node)"
        )
    faults += [f"cluster_peers: names {name} twice" for name in set(names) if names.count(name) > 1]
    if bool(settings.cluster_secret) == (settings.cluster_secret_file is not None):
        faults.append("cluster_secret and cluster_secret_file: set one of them")
    if settings.cluster_tls and (settings.tls_cert is None or settings.tls_ca is None):
        faults.append("cluster_tls: needs tls_cert and tls_ca")
    if settings.durability != "sync":
        faults.append("durability: a cluster needs sync")
    return faults


def _port_of_address_faults(name: str, address: str) -> list[str]:
    port = int(address.rpartition(":")[2])  # the pattern of the option lets only digits pass
    if 0 < port <= PORT_MAX:
        return []
    return [f"{name}: the port of {address} is not between 1 and {PORT_MAX}"]


def _jobs_faults(settings: Settings) -> list[str]:
    if bool(settings.jobs_redis) == bool(settings.jobs_postgres):
        return []
    return ["jobs_redis and jobs_postgres: set both, or neither to keep jobs in the broker"]


def _proxy_faults(settings: Settings) -> list[str]:
    faults = []
    for name in PROXY_OPTIONS:
        for part in filter(None, map(str.strip, getattr(settings, name).split(","))):
            try:
                ip_network(part, strict=False)
            except ValueError:
                faults.append(f"{name}: '{part}' is neither an address nor a network")
    return faults


def _oauth2_faults(settings: Settings) -> list[str]:
    given = [
        name
        for name in ("oauth2_secret", "oauth2_keys", "oauth2_jwks_file", "oauth2_jwks_url")
        if getattr(settings, name)
    ]
    faults = []
    if settings.oauth2_resource_server_id and not given:
        faults.append("oauth2_resource_server_id: tokens cannot be verified without a key")
    if given and not settings.oauth2_resource_server_id:
        faults.append(f"{given[0]}: it has no effect without oauth2_resource_server_id")
    if 0 < len(settings.oauth2_secret) < SECRET_CHARACTERS_MIN:
        faults.append(f"oauth2_secret: it is shorter than {SECRET_CHARACTERS_MIN} characters")
    return faults
