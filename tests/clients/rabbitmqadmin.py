"""Where to find rabbitmqadmin, the Python script of RabbitMQ's management plugin.

It is not ours to ship. Debian's package rabbitmq-server brings it; where that is not installed, the
package is downloaded and the script alone is taken out of it, without Erlang and without a broker.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

NAME: Final = "rabbitmqadmin"
PACKAGE: Final = "rabbitmq-server"
WITHIN_S: Final = 120.0
# Kept between runs: a download is needed once.
KEPT: Final = Path(__file__).parents[2] / "build" / "rabbitmqadmin"


class UnavailableError(Exception):
    """The script cannot be had here; the text says why, in one sentence."""


def find() -> Path:
    """The script. Raises Unavailable."""
    installed = shutil.which(NAME)
    if installed is not None and _is_python(Path(installed)):
        return Path(installed)
    library = Path("/usr/lib/rabbitmq/lib")
    for path in sorted(library.glob(f"*/plugins/rabbitmq_management-*/priv/www/cli/{NAME}")):
        return path
    if not (KEPT / NAME).exists():
        _download()
    return KEPT / NAME


def _is_python(path: Path) -> bool:
    """Not the later one, which is a program of its own."""
    return path.read_bytes()[:64].startswith(b"#!") and b"python" in path.read_bytes()[:64]


def _download() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise UnavailableError(f"{NAME} comes with Debian's package {PACKAGE}: install it")
    KEPT.mkdir(parents=True, exist_ok=True)
    try:
        _run(["apt-get", "download", PACKAGE])
        (package,) = KEPT.glob(f"{PACKAGE}_*.deb")
        _run(["dpkg-deb", "-x", package.name, "unpacked"])
        found = next((KEPT / "unpacked").rglob(NAME))
    except (subprocess.SubprocessError, OSError, ValueError, StopIteration) as fault:
        raise UnavailableError(
            f"{NAME} could not be taken from Debian's {PACKAGE}: {fault}"
        ) from fault
    part = KEPT / f"{NAME}.part"
    shutil.copy(found, part)
    part.rename(KEPT / NAME)
    shutil.rmtree(KEPT / "unpacked")
    package.unlink()


def _run(command: list[str]) -> None:
    subprocess.run(command, cwd=KEPT, check=True, capture_output=True, timeout=WITHIN_S)
