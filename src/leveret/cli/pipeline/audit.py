"""`leveret pipeline audit`: check that every message is accounted for. See docs/reports.md."""

import re
from typing import Annotated, Any, Final

import typer

from leveret.cli.pipeline.options import UNITS_S, pipeline_command, show_progress
from leveret.cli.shared.options import print_json
from leveret.cli.shared.output import Output
from leveret.errors import ConfigError
from leveret.pipeline.environment import Environment

FAULTS_FOUND: Final = 3  # exit code; 1 means that the audit could not run
FAULTS_SHOWN: Final = 100
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


@pipeline_command
def audit(
    environment: Environment,
    output: Output,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", help="Only this queue. Repeatable."),
    ] = None,
    stuck_after: Annotated[
        str | None,
        typer.Option(
            "--stuck-after",
            help="Report messages that are ready or in flight for longer: 90s, 15m, 2h.",
        ),
    ] = None,
    no_transient: Annotated[
        bool,
        typer.Option("--no-transient", help="Ignore lost messages that were not persistent."),
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of faults shown.")
    ] = FAULTS_SHOWN,
) -> None:
    """Account for every message of queues with x-remember. Exit code 3 if there are faults."""
    stuck_after_s = parse_age(stuck_after) if stuck_after is not None else None
    from leveret.pipeline import preflight
    from leveret.pipeline.flows import audit as flows

    preflight.require_broker(environment)
    for name in queues or ():
        preflight.require_queue(environment, name)
    spark = environment.session("audit")
    asked = flows.AuditRequest(tuple(queues or ()), stuck_after_s, not no_transient, limit)
    with show_progress() as on_step:
        found = flows.audit(spark, environment, asked, on_step)
    if output.as_json:
        print_json({"clean": found.is_clean, **vars(found)})
    else:
        _show(output, found)
    if not found.is_clean:
        raise typer.Exit(FAULTS_FOUND)


def parse_age(text: str) -> float:
    """Parse an age such as 90, 90s, 15m, 2h or 1d into seconds. Raise ConfigError."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"'{text}' is not an age: use seconds, or a number followed by s, m, h or d"
        )
    return float(found[1]) * UNITS_S[found[2] or "s"]


def _show(output: Output, found: Any) -> None:
    """Print tables of the queues (without columns that are all 0), the publishes and the faults."""
    used = [name for name in (found.queues or [{}])[0] if name not in ("queue", "balance")]
    used = [name for name in used if any(queue[name] for queue in found.queues)]
    if found.queues:
        output.table(found.queues, ["queue", *used, "balance"])
    if found.publishes.get("published"):
        output.table([found.publishes], list(found.publishes))
    for fault in found.faults:
        _print_fault(fault)
    more = found.fault_count - len(found.faults)
    if more > 0:
        typer.echo(f"{more:,} more faults; use --limit to show more")
    verdict = (
        "every message is accounted for" if found.is_clean else f"{found.fault_count:,} faults"
    )
    typer.echo(f"{verdict}; {found.events:,} events up to {found.time}")


def _print_fault(fault: dict[str, Any]) -> None:
    where = f" of queue '{fault['queue']}'" if fault["queue"] else ""
    named = f", message id {fault['message_id']}" if fault["message_id"] else ""
    typer.echo(f"{fault['kind']}: {fault['broker_id']}{where}{named} {fault['what']}")
    for seen in fault["events"] or ():
        reason = f" ({seen['reason']})" if seen["reason"] else ""
        place = f" {seen['queue']}" if seen["queue"] else ""
        typer.echo(f"    {seen['time']}  {seen['event']}{reason}{place}  {seen['number']}")
    if fault["state"]:
        typer.echo(f"    now: {fault['state']}")
