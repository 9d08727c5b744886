"""A certificate that nobody trusts, for measuring brokers over TLS. Made by the command openssl."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SelfSigned:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


def why_not() -> str:
    """Return why no certificate can be made here; empty if one can."""
    return "" if shutil.which("openssl") is not None else "openssl is not installed"


def self_signed(directory: Path) -> SelfSigned:
    """Make a certificate for 127.0.0.1, with an RSA key."""
    directory.mkdir(parents=True, exist_ok=True)
    made = SelfSigned(directory / "cert.pem", directory / "key.pem")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj /CN=127.0.0.1".split()
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command, "-keyout", str(made.key), "-out", str(made.cert)],
        check=True,
        capture_output=True,
    )
    made.key.chmod(0o644)  # RabbitMQ reads it as a user of its own; nobody trusts it anyway
    return made
