"""Commands `leveret ctl user`, `permission`, `policy`, `parameter`, `limit` and `definitions`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from leveret.cli.ctl.objects import parse_pairs
from leveret.cli.shared.management import ManagementClient, quote_path
from leveret.cli.shared.options import Vhost, print_json
from leveret.cli.shared.output import Output, broker_command

user = typer.Typer(no_args_is_help=True, help="Create, change and delete users.")
permission = typer.Typer(no_args_is_help=True, help="Set what a user may do in a vhost.")
policy = typer.Typer(
    no_args_is_help=True,
    help="Set rules for queues and exchanges that match a pattern.",
)
parameter = typer.Typer(no_args_is_help=True, help="Set runtime parameters, such as shovels.")
limit = typer.Typer(no_args_is_help=True, help="Set limits of a vhost or a user.")
definitions = typer.Typer(
    no_args_is_help=True, help="Export and import everything except messages."
)

UserName = Annotated[str, typer.Argument(help="Name of the user.")]
PolicyName = Annotated[str, typer.Argument(help="Name of the policy.")]
ParameterName = Annotated[str, typer.Argument(help="Name of the parameter.")]
Tags = Annotated[
    str,
    typer.Option(
        "--tags",
        help="Tags, separated by commas: administrator, monitoring, policymaker, management.",
    ),
]
NewPassword = Annotated[
    str | None,
    typer.Option(
        "--new-password", help="The password. Default: ask, or read a line of standard input."
    ),
]
_PASSWORD_PROMPT = "password of the user"


@user.command("set")
@broker_command
def set_user(
    broker: ManagementClient,
    output: Output,
    name: UserName,
    new_password: NewPassword = None,
    tags: Tags = "",
) -> None:
    """Create a user, or change the password and tags of a user."""
    secret = new_password if new_password is not None else _ask_password()
    broker.put(f"/api/users/{quote_path(name)}", {"password": secret, "tags": tags})
    output.done(f"user {name} is set")


@user.command("tags")
@broker_command
def set_tags(
    broker: ManagementClient,
    output: Output,
    name: UserName,
    tags: Annotated[str, typer.Argument(help="The new tags, separated by commas.")],
) -> None:
    """Change the tags of a user."""
    have = broker.get(f"/api/users/{quote_path(name)}")
    body = {key: have[key] for key in ("password_hash", "hashing_algorithm") if key in have}
    broker.put(f"/api/users/{quote_path(name)}", {**body, "tags": tags})
    output.done(f"user {name} has tags {tags}")


@user.command("delete")
@broker_command
def delete_user(broker: ManagementClient, output: Output, name: UserName) -> None:
    """Delete a user."""
    broker.delete(f"/api/users/{quote_path(name)}")
    output.done(f"user {name} is deleted")


def _ask_password() -> str:
    if not sys.stdin.isatty():
        secret = sys.stdin.readline().rstrip("\n")
        if not secret:
            raise typer.BadParameter("standard input has no password; give --new-password")
        return secret
    found: str = typer.prompt(_PASSWORD_PROMPT, hide_input=True, confirmation_prompt=True)
    return found


Who = Annotated[str, typer.Argument(help="The user.")]
Pattern = Annotated[
    str, typer.Option(help="Regular expression for names of queues and exchanges; empty = none.")
]
KeyPattern = Annotated[str, typer.Option(help="Regular expression for routing keys.")]


@permission.command("set")
@broker_command
def set_permission(
    broker: ManagementClient,
    output: Output,
    name: Who,
    configure: Pattern = ".*",
    write: Pattern = ".*",
    read: Pattern = ".*",
    vhost: Vhost = "/",
) -> None:
    """Give a user permissions in a vhost."""
    body = {"configure": configure, "write": write, "read": read}
    broker.put(f"/api/permissions/{quote_path(vhost, name)}", body)
    output.done(f"user {name} has permissions in vhost {vhost}")


@permission.command("clear")
@broker_command
def clear_permission(
    broker: ManagementClient, output: Output, name: Who, vhost: Vhost = "/"
) -> None:
    """Remove all permissions of a user in a vhost."""
    broker.delete(f"/api/permissions/{quote_path(vhost, name)}")
    output.done(f"user {name} has no permissions in vhost {vhost}")


@permission.command("set-topic")
@broker_command
def set_topic_permission(
    broker: ManagementClient,
    output: Output,
    name: Who,
    exchange: Annotated[str, typer.Argument(help="The topic exchange.")],
    write: KeyPattern = ".*",
    read: KeyPattern = ".*",
    vhost: Vhost = "/",
) -> None:
    """Limit the routing keys of a user for a topic exchange."""
    body = {"exchange": exchange, "write": write, "read": read}
    broker.put(f"/api/topic-permissions/{quote_path(vhost, name)}", body)
    output.done(f"topic permissions of user {name} for {exchange} are set")


Operator = Annotated[
    bool, typer.Option("--operator", help="It is an operator policy, which limits other policies.")
]


def _policy_path(is_operator: bool, vhost: str, name: str) -> str:
    kind = "operator-policies" if is_operator else "policies"
    return f"/api/{kind}/{quote_path(vhost, name)}"


@policy.command("set")
@broker_command
def set_policy(
    broker: ManagementClient,
    output: Output,
    name: PolicyName,
    pattern: Annotated[str, typer.Argument(help="Regular expression for the names it applies to.")],
    definition: Annotated[
        list[str], typer.Argument(help="Settings as KEY=VALUE: message-ttl=60000 …")
    ],
    priority: Annotated[
        int,
        typer.Option(
            "--priority", help="Of several matching policies, the highest priority applies."
        ),
    ] = 0,
    apply_to: Annotated[
        str, typer.Option("--apply-to", help="What it applies to: queues, exchanges, all, …")
    ] = "all",
    operator: Operator = False,
    vhost: Vhost = "/",
) -> None:
    """Create or change a policy."""
    body = {
        "pattern": pattern,
        "definition": parse_pairs(definition),
        "priority": priority,
        "apply-to": apply_to,
    }
    broker.put(_policy_path(operator, vhost, name), body)
    output.done(f"policy {name} is set")


@policy.command("clear")
@broker_command
def clear_policy(
    broker: ManagementClient,
    output: Output,
    name: PolicyName,
    operator: Operator = False,
    vhost: Vhost = "/",
) -> None:
    """Remove a policy."""
    broker.delete(_policy_path(operator, vhost, name))
    output.done(f"policy {name} is removed")


Component = Annotated[str, typer.Argument(help="The component: shovel, …")]


@parameter.command("set")
@broker_command
def set_parameter(
    broker: ManagementClient,
    output: Output,
    component: Component,
    name: ParameterName,
    value: Annotated[str, typer.Argument(help="The value, as JSON.")],
    vhost: Vhost = "/",
) -> None:
    """Set a runtime parameter."""
    try:
        decoded: Any = json.loads(value)
    except ValueError as fault:
        raise typer.BadParameter(f"the value is not JSON: {fault}") from None
    body = {"component": component, "vhost": vhost, "name": name, "value": decoded}
    broker.put(f"/api/parameters/{quote_path(component, vhost, name)}", body)
    output.done(f"parameter {name} of {component} is set")


@parameter.command("clear")
@broker_command
def clear_parameter(
    broker: ManagementClient,
    output: Output,
    component: Component,
    name: ParameterName,
    vhost: Vhost = "/",
) -> None:
    """Remove a runtime parameter."""
    broker.delete(f"/api/parameters/{quote_path(component, vhost, name)}")
    output.done(f"parameter {name} of {component} is removed")


LimitName = Annotated[str, typer.Argument(help="max-connections, max-queues or max-channels.")]
OfUser = Annotated[
    str | None, typer.Option("--of-user", help="Limit this user instead of a vhost.")
]


def _limit_path(vhost: str, of_user: str | None, name: str) -> str:
    if of_user is not None:
        return f"/api/user-limits/{quote_path(of_user, name)}"
    return f"/api/vhost-limits/{quote_path(vhost, name)}"


@limit.command("set")
@broker_command
def set_limit(
    broker: ManagementClient,
    output: Output,
    name: LimitName,
    value: Annotated[int, typer.Argument(help="The limit; -1 = no limit.")],
    of_user: OfUser = None,
    vhost: Vhost = "/",
) -> None:
    """Set a limit."""
    broker.put(_limit_path(vhost, of_user, name), {"value": value})
    output.done(f"{name} is {value}")


@limit.command("clear")
@broker_command
def clear_limit(
    broker: ManagementClient,
    output: Output,
    name: LimitName,
    of_user: OfUser = None,
    vhost: Vhost = "/",
) -> None:
    """Remove a limit."""
    broker.delete(_limit_path(vhost, of_user, name))
    output.done(f"{name} is removed")


OfVhost = Annotated[str | None, typer.Option("--vhost", help="Only this vhost.")]


@definitions.command("export")
@broker_command
def export(
    broker: ManagementClient,
    output: Output,
    file: Annotated[
        Path | None, typer.Argument(help="The file to write. Default: standard output.")
    ] = None,
    vhost: OfVhost = None,
) -> None:
    """Write everything except messages to a file."""
    found = broker.get("/api/definitions" + (f"/{quote_path(vhost)}" if vhost is not None else ""))
    if file is None:
        print_json(found)
        return
    file.write_text(json.dumps(found, indent=2) + "\n")
    output.done(f"the definitions are in {file}")


@definitions.command("import")
@broker_command
def import_(
    broker: ManagementClient,
    output: Output,
    file: Annotated[Path, typer.Argument(help="A definitions file of Leveret or RabbitMQ.")],
    vhost: OfVhost = None,
) -> None:
    """Import definitions from a file. Existing objects stay."""
    try:
        found = json.loads(file.read_text())
    except ValueError as fault:
        raise typer.BadParameter(f"{file} is not JSON: {fault}") from None
    broker.post("/api/definitions" + (f"/{quote_path(vhost)}" if vhost is not None else ""), found)
    output.done(f"the definitions of {file} are imported")
