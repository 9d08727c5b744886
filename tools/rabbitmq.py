"""Debian's RabbitMQ as a node of our own: what it needs to run beside others and leave nothing.

A RabbitMQ that runs already is never touched: ours has its own node name, home, directories, ports
and epmd. Starting and ending the process is the caller's; it is ended by its own pid.
"""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.certificates import SelfSigned
from tools.ports import HOST, free_port

SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CONTROL: Final = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
ROOT: Final = Path(__file__).resolve().parents[1]
USER: Final = "rabbitmq"  # of Debian's package; only root can become it


class UnavailableError(Exception):
    """A broker cannot be had on this machine; the text says why."""


def require_installed(*, install: bool = False) -> None:
    """Raise Unavailable where there is no RabbitMQ; install it first, if that is allowed."""
    if install and not SERVER.exists():
        script = ROOT / "tools" / "system_packages.sh"
        subprocess.run([script, sys.executable, "rabbitmq"], check=False)
        restore_null()
    if not SERVER.exists():
        raise UnavailableError("RabbitMQ is not installed; Debian's package is rabbitmq-server")


def user() -> str | None:
    """Return the user that RabbitMQ runs as: its own if this process is root, else None."""
    return USER if os.geteuid() == 0 else None


def environment(directory: Path, name: str, port: int, epmd_port: int) -> dict[str, str]:
    """Return the environment of a separate node. RabbitMQ's user gets the existing `directory`."""
    if os.geteuid() == 0:
        shutil.chown(directory, USER, USER)
    plugins = directory / "enabled_plugins"
    plugins.write_text("[].\n")
    return {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"{name}{os.getpid()}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none.env"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(epmd_port),
    }


def tls_config(directory: Path, tls: SelfSigned, port: int) -> Path:
    """A configuration file with a listener for TLS, which asks for no client certificates."""
    path = directory / "tls.conf"
    path.write_text(
        f"listeners.ssl.1 = {HOST}:{port}\n"
        f"ssl_options.certfile = {tls.cert}\n"
        f"ssl_options.keyfile = {tls.key}\n"
        "ssl_options.verify = verify_none\n"
        "ssl_options.fail_if_no_peer_cert = false\n"
    )
    return path


def join(environments: Sequence[dict[str, str]], directories: Sequence[Path]) -> None:
    """Let nodes form a cluster when they are started one after the other, in this order.

    `environments` are those of `environment`, with the same port of epmd.
    """
    lines = ["cluster_formation.peer_discovery_backend = classic_config"]
    for number, each in enumerate(environments, 1):
        name = each["RABBITMQ_NODENAME"]
        lines.append(f"cluster_formation.classic_config.nodes.{number} = {name}")
    cookie = secrets.token_hex()
    for directory, each in zip(directories, environments, strict=True):
        path = directory / "cluster.conf"
        path.write_text("\n".join(lines) + "\n")
        each["RABBITMQ_CONFIG_FILE"] = str(path)
        secret = directory / ".erlang.cookie"  # the nodes must have the same one
        secret.write_text(cookie)
        secret.chmod(0o400)
        if os.geteuid() == 0:
            shutil.chown(secret, USER, USER)


def await_nodes(environment: dict[str, str], count: int, within_s: float) -> None:
    """Wait until the cluster of a node has this many running nodes. Raise UnavailableError."""
    node = environment["RABBITMQ_NODENAME"]
    command = [str(CONTROL), "-n", node, "await_online_nodes", str(count)]
    command += ["--timeout", str(int(within_s))]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        cwd=environment["HOME"],
        user=user(),
        group=user(),
    )
    if done.returncode != 0:
        raise UnavailableError(f"RabbitMQ has no {count} nodes: {done.stderr.strip()[-500:]}")


def end_epmd(port: int) -> None:
    """Erlang's name daemon on our own port outlives its node."""
    epmd = shutil.which("epmd")
    if epmd is not None:
        command = [epmd, "-port", str(port), "-kill"]
        subprocess.run(command, check=False, capture_output=True)


def restore_null() -> None:
    """RabbitMQ's scripts may leave /dev/null with their own owner and mode, which breaks others."""
    null = Path(os.devnull)
    if os.geteuid() == 0 and null.stat().st_mode & 0o777 != 0o666:
        os.chown(null, 0, 0)
        null.chmod(0o666)


def version() -> str:
    """Return the version of the installed package; `none` without one."""
    library = SERVER.parents[1] / "lib"
    found = [path.name.partition("-")[2] for path in library.glob("rabbitmq_server-*")]
    return found[0] if found else "none"
