"""TLS contexts from the certificate and key of the node, reloaded while the node runs.

The context of a listener only hands each handshake over to the context of the current files. The
files are checked for changes at a handshake, at most once in `LOOK_S`, and on SIGHUP. New files are
loaded into a new context, which takes over only if all files are sound. A broken file changes
nothing and is reported once. Existing connections keep their certificates.

There are no session tickets, because connections of a broker last long.
"""

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from leveret.auth.certificates import NameRule
from leveret.config.settings import Settings
from leveret.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

# For each file: modification time, size, and inode, because a new file may replace the old one.
Stamps = tuple[tuple[int, int, int], ...]


class Certificates:
    """The TLS contexts of one node."""

    def __init__(self, settings: Settings, now_s: Callable[[], float] = time.monotonic) -> None:
        """Load the files. Raises ConfigError if they cannot be used."""
        assert settings.tls_cert is not None
        self._settings = settings
        self._now_s = now_s
        paths = (settings.tls_cert, settings.tls_key, settings.tls_ca)
        self._paths = [path for path in paths if path is not None]
        self._stamps = self._look()
        self._looked_s = now_s()
        # AMQP clients may be asked for certificates; HTTP clients log in with passwords.
        self._verified, self._plain = self._load()
        self._peers, self._dialing = self._load_links()
        self.amqp = self._listening(settings.tls_verify, lambda: self._verified)
        self.http = self._listening("none", lambda: self._plain)
        # Other nodes must show a certificate of the same authority, in both directions.
        self.links = self._listening("required", lambda: self._peers)

    @property
    def name_rule(self) -> NameRule | None:
        """Return how certificates of AMQP clients name users; None if clients show none."""
        settings = self._settings
        if settings.tls_verify == "none":
            return None
        return NameRule(settings.tls_login_from, settings.tls_login_san_type)

    def ends(self) -> list[tuple[str, int]]:
        """Return the certificate files, each with its expiry time in milliseconds since 1970."""
        paths = (self._settings.tls_cert, self._settings.tls_ca)
        return [(str(path), _end_ms(path)) for path in paths if path is not None]

    def reload(self) -> bool:
        """Load the files again. Log an error and return False if they cannot be used."""
        self._stamps = self._look()
        try:
            loaded, links = self._load(), self._load_links()
        except ConfigError as fault:
            log.error("the TLS certificates were not reloaded, the old ones are used: %s", fault)
            return False
        self._verified, self._plain = loaded
        self._peers, self._dialing = links
        log.info("the TLS certificates were reloaded")
        return True

    def dialing(self) -> ssl.SSLContext:
        """Return the client context for links to other nodes: both sides show certificates."""
        self._maybe_reload()
        return self._dialing

    def _maybe_reload(self) -> None:
        now_s = self._now_s()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        if self._look() != self._stamps:
            self.reload()

    def _look(self) -> Stamps:
        return tuple(_stamp(path) for path in self._paths)

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Return a server context that verifies clients, and one that does not ask them."""
        settings = self._settings
        try:
            verified = self._context(settings.tls_verify)
            if settings.tls_ca is not None:
                verified.load_verify_locations(settings.tls_ca)
            plain = self._context("none")
            for context in (verified, plain):
                self._load_chain(context)
        except (OSError, ValueError) as fault:
            raise self._unusable(fault) from fault
        return verified, plain

    def _load_links(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Return the contexts of both sides of a link between nodes."""
        listening = self._context("required")
        dialing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        dialing.minimum_version = listening.minimum_version
        try:
            for context in (listening, dialing):
                if self._settings.tls_ca is not None:
                    context.load_verify_locations(self._settings.tls_ca)
                self._load_chain(context)
        except (OSError, ValueError) as fault:
            raise self._unusable(fault) from fault
        return listening, dialing

    def _load_chain(self, context: ssl.SSLContext) -> None:
        settings = self._settings
        context.load_cert_chain(
            str(settings.tls_cert),
            str(settings.tls_key) if settings.tls_key is not None else None,
            str(
                settings.tls_key_pass
            ),  # even if empty: without one, OpenSSL would ask at the terminal
        )

    def _unusable(self, fault: Exception) -> ConfigError:
        names = ", ".join(map(str, self._paths))
        reason = getattr(fault, "reason", None) or getattr(fault, "strerror", None) or fault
        return ConfigError(f"{names}: cannot be used for TLS: {reason}")

    def _listening(self, verify: str, current: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return the context of a listener, which hands each handshake to the current context."""

        def on_hello(secured: Any, name: str | None, context: ssl.SSLContext) -> None:
            self._maybe_reload()
            secured.context = current()

        context = self._context(verify)
        context.sni_callback = on_hello  # OpenSSL calls it for clients without a name too
        return context

    def _context(self, verify: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self._settings.tls_version_min]
        context.verify_mode = _VERIFY[verify]
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        return context


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _end_ms(path: Path) -> int:
    """Return when the first certificate of a file expires; 0 if it cannot be read."""
    try:
        # The standard library has no public function that reads a certificate.
        found: dict[str, str] = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]
    except OSError:
        return 0
    return int(ssl.cert_time_to_seconds(found["notAfter"]) * 1000)
