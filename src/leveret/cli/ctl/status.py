"""`leveret ctl status` without Typer, for health checks that run every few seconds.

Typer imports pydantic to read the value of an option, which takes three quarters of the CPU time of
this command. `read_plain` reads the options of `status` alone. A command line that it does not
understand goes to Typer, which knows the help text and the errors.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from leveret.cli.ctl import cluster_status
from leveret.cli.shared.broker_address import DEFAULT_URL, PASSWORD_ENV, URL_ENV, USER_ENV
from leveret.cli.shared.failures import describe_failure
from leveret.cli.shared.management import ManagementClient, NoAnswerError

_INTERRUPTED: Final = 130  # exit code of a command that Ctrl+C ends
_DURABILITY_TEXTS: Final = {
    "sync": "confirmed messages are on disk (durability sync)",
    "os": "a power failure can lose confirmed messages (durability os)",
    "none": "nothing is stored",
}
# Advice for the reasons of a failed health check.
_ADVICE: Final = {
    "low on memory": "publishers wait; find the queues that grow: leveret ctl list queues "
    "--sort messages_ready --reverse",
    "low on disk": "publishers wait; free space on the disk of the data directory",
}
_CHECKS: Final = "/api/health/checks"
_STOPPED: Final = "stopped"  # state of a cluster that serves no client
_DISK_CHECK: Final = f"{_CHECKS}/disk-speed"
_SLOW_DISK_ADVICE: Final = (
    "look for other programs that use this disk, and for faults of it; in a cluster: leveret ctl "
    "cluster status"
)


@dataclass(frozen=True)
class StatusOptions:
    """The options of `leveret ctl status`."""

    url: str
    user: str | None
    password: str | None
    as_json: bool


def read_plain(words: Sequence[str], env: Mapping[str, str] = os.environ) -> StatusOptions | None:
    """Return the options after `ctl status`, or None if a word is not one of them."""
    given: dict[str, str] = {}
    as_json = False
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name == "--json" and not equals:
            as_json = True
            continue
        if not equals and rest:
            value = rest.pop(0)
        if name not in ("--url", "--user", "--password") or not value or value[0] == "-":
            return None
        given[name] = value
    return StatusOptions(
        url=given.get("--url") or env.get(URL_ENV) or DEFAULT_URL,
        user=given.get("--user") or env.get(USER_ENV) or None,
        password=given.get("--password") or env.get(PASSWORD_ENV) or None,
        as_json=as_json,
    )


def run(options: StatusOptions) -> int:
    """Show the health and version of the broker, and return the exit code."""
    try:
        broker = ManagementClient(options.url, options.user, options.password)
        return show_status(broker, as_json=options.as_json, echo=print)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as fault:
        text = describe_failure(fault)
        if text is None:
            raise
        print(f"leveret ctl: {text}", file=sys.stderr)
        return 1


def show_status(broker: ManagementClient, *, as_json: bool, echo: Callable[[str], None]) -> int:
    """Ask the broker, print its state, and return the exit code: 0 if it is healthy.

    A server of the jobs service that does not answer is shown, but it does not make the broker
    unhealthy: a restart of the broker would not help.
    """
    health = broker.get_any("/api/health")
    if broker.has_login and health.get("cluster") != _STOPPED:  # then none may be checked
        broker.get("/api/whoami")  # the health check needs no login, but a wrong one must be told
    version = broker.get_any("/api/version")
    if as_json:
        echo(json.dumps({"health": health, "version": version}, indent=2))
    else:
        echo(f"node     {health.get('node')}")
        reason = str(health.get("reason") or health.get("status"))
        echo(f"health   {reason}")
        for fault in reason.split("; "):
            if fault in _ADVICE:
                echo(f"advice   {_ADVICE[fault]}")
        if health.get("jobs"):
            echo(f"jobs     {_jobs_fault(broker)}")
        if health.get("clock"):
            echo(f"clock    {health['clock']}")
        if health.get("background"):
            echo(f"faults   {_background_faults(broker)}")
        for line in _cluster(broker, health):
            echo(line)
        for line in _slow_disks(broker, health):
            echo(line)
        echo(f"safe     {_DURABILITY_TEXTS.get(str(health.get('durability')), 'unknown')}")
        if version.get("version"):  # without a leader, a node of a cluster does not answer
            echo(f"version  {version.get('version')} ({version.get('form')})")
    return 0 if health.get("status") == "ok" else 1


def _background_faults(broker: ManagementClient) -> str:
    if not broker.has_login:
        return "work in the background fails: give --user and --password to see which"
    return str(broker.get_any(f"{_CHECKS}/background").get("reason"))


def _cluster(broker: ManagementClient, health: dict[str, object]) -> Iterator[str]:
    """Yield the state of the cluster and what to do, if the node is in one."""
    state = health.get("cluster")
    if not state:
        return
    if not broker.has_login:  # a health check must not cause failed logins
        yield f"cluster  {state}: give --user and --password to see its nodes"
        return
    try:
        line, *advice = cluster_status.summary(cluster_status.ask(broker))
    except NoAnswerError as fault:  # the user may not see the cluster, or no node leads
        line, advice = f"{state}: {fault}", []
    yield f"cluster  {line}"
    for each in advice:
        yield f"advice   {each}"


def _slow_disks(broker: ManagementClient, health: dict[str, object]) -> Iterator[str]:
    """Yield lines about slow disks: of all nodes of a cluster, or without a login of this node."""
    rows = broker.get_any(_DISK_CHECK).get("disks") if broker.has_login else None
    if isinstance(rows, list):
        for row in rows:
            sync = f"a sync of {row['data']}" if row["data"] else "a sync"
            took = f"{sync} takes {row['sync_ms']} ms"
            yield f"disk     the disk of node {row['node']} is slow: {took}"
    elif health.get("disk"):
        yield f"disk     {health['disk']}"
    else:
        return
    yield f"advice   {_SLOW_DISK_ADVICE}"


def _jobs_fault(broker: ManagementClient) -> str:
    if not broker.has_login:  # a health check must not cause failed logins
        return (
            "a server does not answer, or a clock differs: give --user and --password to see which"
        )
    return str(broker.get_any("/api/health/checks/jobs").get("reason"))
