"""Loads the settings. Flags override the environment, and the environment overrides the TOML file.

Every source is read to its end before faults are reported, so that a user sees all faults at once,
each with its place. Unknown keys in the file are faults, because a misspelt option that is silently
ignored costs hours. Unknown LEVERET_… variables in the environment are ignored, because other
software sets such variables too (an orchestrator sets one for each service).
"""

from collections.abc import Mapping
from pathlib import Path

from leveret.config.settings import Settings, env_name, flag_name, options
from leveret.errors import ConfigError

CONFIG_ENV = "LEVERET_CONFIG"
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
    path = config_file or env.get(CONFIG_ENV)
    if path:
        _read_file(Path(path), values, faults)
    for name in options():
        if env_name(name) in env:
            _read(name, env[env_name(name)], env_name(name), values, faults)
    for name, raw in flags.items():
        _read(name, raw, flag_name(name), values, faults)
    settings = Settings(**values)  # type: ignore[arg-type]  # Option.read gives the field's type
    faults += _faults_together(settings)
    if faults:
        raise ConfigError("\n".join(faults))
    return settings


def _read_file(path: Path, values: dict[str, object], faults: list[str]) -> None:
    import difflib  # importing these takes 8 ms, and most starts have no file
    import tomllib

    try:
        table = tomllib.loads(path.read_text())
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
            _read(key, raw, f"{path}: {key}", values, faults)
        else:
            near = difflib.get_close_matches(key, options(), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            faults.append(f"{path}: {key}: no such option{hint}")


def _read(name: str, raw: object, place: str, values: dict[str, object], faults: list[str]) -> None:
    try:
        values[name] = options()[name].read(raw)
    except ValueError as fault:
        faults.append(f"{place}: {fault}")


def _faults_together(settings: Settings) -> list[str]:
    """Return faults that concern several options together."""
    faults = [*_port_faults(settings), *_tls_faults(settings), *_oauth2_faults(settings)]
    faults += [
        f"{flag_name(name)}: clustering is not available yet"
        for name in ("cluster_listen", "cluster_peers")
        if getattr(settings, name)
    ]
    return faults


def _port_faults(settings: Settings) -> list[str]:
    faults = []
    seen: dict[int, str] = {}
    for name in ("amqp_port", "http_port", "amqps_port", "https_port"):
        port = getattr(settings, name)
        if not port:
            continue
        if port in seen:
            faults.append(f"{seen[port]} and {name}: both use port {port}")
        seen.setdefault(port, name)
    return faults


def _tls_faults(settings: Settings) -> list[str]:
    faults = []
    listens = settings.amqps_port is not None or settings.https_port is not None
    if listens and settings.tls_cert is None:
        faults.append("tls_cert: a TLS port needs a certificate")
    if settings.tls_verify != "none" and settings.tls_ca is None:
        faults.append("tls_ca: client certificates cannot be verified without it")
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
