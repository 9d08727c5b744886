"""TLS contexts from the certificate and key of the node, reloaded while the node runs.

The context of a listener only hands each handshake over to the context of the current files. The
files are checked for changes at a handshake, at most once in `LOOK_S`, and on SIGHUP. New files are
loaded into a new context, which takes over only if all files are sound. A broken file changes
nothing and is reported once. Existing connections keep their certificates.

The log has a warning if a certificate has expired, is not valid yet or expires within `WARN_S`. The
dates are checked when files are loaded, and at a handshake once a day.

There are no session tickets, because connections of a broker last long.
"""

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from leveret.auth.certificates import NameRule
from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
WARN_S: Final = 14 * 86_400
_DATES_S: Final = 86_400  # between two checks of the dates
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_REASONS: Final = {
    "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
    "KEY_TYPE_MISMATCH": "the private key does not belong to the certificate",
    "NO_CERTIFICATE_ASSIGNED": "the private key does not belong to the certificate",
    "": "a file has no certificate or no private key as PEM, or tls_key_pass is wrong",
}

_EXPIRED: Final = "the certificate %s has expired, and clients refuse it: renew it"

# For each file: modification time, size, and inode, because a new file may replace the old one.
Stamps = tuple[tuple[int, int, int], ...]


class Certificates:
    """The TLS contexts of one node."""

    def __init__(
        self,
        settings: Settings,
        now_s: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Load the files. Raises ConfigError if they cannot be used."""
        assert settings.tls_cert is not None
        self._settings = settings
        self._reload_fault = ""  # why the last reload failed; empty if it did not
        self._dates: list[tuple[str, int, int]] = []  # of the files that are loaded
        self._now_s = now_s
        self._now_ms = now_ms if now_ms is not None else Clock().now_ms
        files = {name: getattr(settings, name) for name in ("tls_cert", "tls_key", "tls_ca")}
        self._files: dict[str, Path] = {name: path for name, path in files.items() if path}
        self._stamps = self._read_stamps()
        self._looked_s = now_s()
        # AMQP clients may be asked for certificates; HTTP clients log in with passwords.
        self._verified, self._plain = self._load()
        self._peers, self._dialing = self._load_links()
        self.amqp = self._listening(settings.tls_verify, lambda: self._verified)
        self.http = self._listening("none", lambda: self._plain)
        # Other nodes must show a certificate of the same authority, in both directions.
        self.links = self._listening("required", lambda: self._peers)
        self._warn_of_dates()

    @property
    def fault(self) -> str:
        """Return why the last reload failed, or which certificate has expired; else empty."""
        now_s = self._now_ms() // 1000
        expired = (path for path, _, end_s in self._dates if 0 < end_s <= now_s)
        text = next((_EXPIRED % path for path in expired), "")
        return self._reload_fault or text

    @property
    def name_rule(self) -> NameRule | None:
        """Return how certificates of AMQP clients name users; None if clients show none."""
        settings = self._settings
        if settings.tls_verify == "none":
            return None
        return NameRule(settings.tls_login_from, settings.tls_login_san_type)

    def ends(self) -> list[tuple[str, int]]:
        """Return the certificate files, each with its expiry time in milliseconds since 1970."""
        return [(path, end_s * 1000) for path, _, end_s in self._validity()]

    def _validity(self) -> list[tuple[str, int, int]]:
        """Return the certificate files, each with the times in s from and until it is valid."""
        paths = (self._settings.tls_cert, self._settings.tls_ca)
        return [(str(path), *_validity_s(path)) for path in paths if path is not None]

    def _warn_of_dates(self) -> None:
        self._dates_due_s = self._now_s() + _DATES_S
        now_s = self._now_ms() // 1000
        self._dates = self._validity()
        for path, begin_s, end_s in self._dates:
            if not end_s:
                continue
            if end_s <= now_s:
                text = _EXPIRED
            elif end_s <= now_s + WARN_S:
                text = "the certificate %s expires soon: renew it"
            elif begin_s > now_s:
                text = "the certificate %s is not valid yet: check the clock of this machine"
            else:
                continue
            log.warning(text, path, extra={"facts": {"from": _day(begin_s), "until": _day(end_s)}})

    def reload(self) -> bool:
        """Load the files again. Log an error and return False if they cannot be used."""
        self._stamps = self._read_stamps()
        self._reload_fault = ""
        try:
            loaded, links = self._load(), self._load_links()
        except ConfigError as fault:
            text = f"the TLS certificates were not reloaded, the old ones are used: {fault}"
            self._reload_fault = text
            log.error("%s", text)
            return False
        self._verified, self._plain = loaded
        self._peers, self._dialing = links
        log.info("the TLS certificates were reloaded")
        self._warn_of_dates()
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
        if self._read_stamps() != self._stamps:
            self.reload()
        elif now_s >= self._dates_due_s:
            self._warn_of_dates()

    def _read_stamps(self) -> Stamps:
        return tuple(_stamp(path) for path in self._files.values())

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
        for name, path in self._files.items():  # the fault of a missing file does not name it
            try:
                path.open("rb").close()
            except OSError as found:
                return ConfigError(
                    f"{name}: {path}: cannot be used for TLS: {found.strerror}: correct the path,"
                    " or let the user of the node read the file"
                )
        names = ", ".join(map(str, self._files.values()))
        reason = str((fault.reason or "") if isinstance(fault, ssl.SSLError) else fault)
        reason = _REASONS.get(reason, reason)
        return ConfigError(f"tls_cert: {names}: cannot be used for TLS: {reason}")

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


def _day(time_s: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(time_s))


def _validity_s(path: Path) -> tuple[int, int]:
    """Return from and until when the first certificate of a file is valid; zeros: unreadable."""
    try:
        # The standard library has no public function that reads a certificate.
        found: dict[str, str] = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]
    except OSError:
        return 0, 0
    begin, end = found["notBefore"], found["notAfter"]
    return int(ssl.cert_time_to_seconds(begin)), int(ssl.cert_time_to_seconds(end))
