"""`leveret pipeline audit`: is every message accounted for? See docs/audit.md."""

import re
from typing import Annotated, Any, Final

import typer

from leveret.cli.pipeline.options import flow, told
from leveret.cli.shared.options import print_json
from leveret.cli.shared.output import Output
from leveret.errors import ConfigError
from leveret.pipeline.site import Site

FAULTS_FOUND: Final = 3  # exit code; 1 is for an audit that failed
FAULTS_SHOWN: Final = 100
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


@flow
def audit(
    site: Site,
    output: Output,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", help="Only this queue; may be given several times."),
    ] = None,
    stuck_after: Annotated[
        str | None,
        typer.Option(
            "--stuck-after", help="Ready or in flight for longer is a fault: 90s, 15m, 2h."
        ),
    ] = None,
    no_transient: Annotated[
        bool,
        typer.Option("--no-transient", help="Leave out lost messages that were not persistent."),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most faults shown.")] = FAULTS_SHOWN,
) -> None:
    """Account for every message that went through queues that remember; exit code 3 for faults."""
    stuck_after_s = seconds(stuck_after) if stuck_after is not None else None
    from leveret.pipeline import readiness
    from leveret.pipeline.flows import audit as flows

    readiness.require_broker(site)
    for name in queues or ():
        readiness.require_queue(site, name)
    spark = site.session("audit")
    asked = flows.Auditing(tuple(queues or ()), stuck_after_s, not no_transient, limit)
    with told() as on_step:
        found = flows.audit(spark, site, asked, on_step)
    if output.as_json:
        print_json({"clean": found.is_clean, **vars(found)})
    else:
        _show(output, found)
    if not found.is_clean:
        raise typer.Exit(FAULTS_FOUND)


def seconds(text: str) -> float:
    """An age such as 90, 90s, 15m, 2h, 1d; ConfigError."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise ConfigError(f"an age is a number of seconds, or one with s, m, h or d, not '{text}'")
    return float(found[1]) * _UNITS_S[found[2] or "s"]


def _show(output: Output, found: Any) -> None:
    """Tables for people: queues with what is not 0, publishes, faults."""
    used = [name for name in (found.queues or [{}])[0] if name not in ("queue", "balance")]
    used = [name for name in used if any(queue[name] for queue in found.queues)]
    if found.queues:
        output.table(found.queues, ["queue", *used, "balance"])
    if found.publishes.get("published"):
        output.table([found.publishes], list(found.publishes))
    for fault in found.faults:
        _tell(fault)
    more = found.fault_count - len(found.faults)
    if more > 0:
        typer.echo(f"and {more:,} more faults: --limit shows more")
    words = "every message is accounted for" if found.is_clean else f"{found.fault_count:,} faults"
    typer.echo(f"{words}; {found.events:,} events up to {found.time}")


def _tell(fault: dict[str, Any]) -> None:
    where = f" of queue '{fault['queue']}'" if fault["queue"] else ""
    named = f", message id {fault['message_id']}" if fault["message_id"] else ""
    typer.echo(f"{fault['kind']}: {fault['broker_id']}{where}{named} {fault['what']}")
    for seen in fault["events"] or ():
        reason = f" ({seen['reason']})" if seen["reason"] else ""
        place = f" {seen['queue']}" if seen["queue"] else ""
        typer.echo(f"    {seen['time']}  {seen['event']}{reason}{place}  {seen['number']}")
    if fault["state"]:
        typer.echo(f"    now: {fault['state']}")
