"""`leveret ctl user`, `permission`, `policy`, `parameter`, `limit` and `definitions`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from leveret.cli.ctl.objects import arguments_of
from leveret.cli.shared.management import Broker, in_path
from leveret.cli.shared.options import Vhost, print_json
from leveret.cli.shared.output import Output, asks

user = typer.Typer(no_args_is_help=True, help="Users: who may log in.")
permission = typer.Typer(no_args_is_help=True, help="What users may do in a vhost.")
policy = typer.Typer(no_args_is_help=True, help="Rules for queues and exchanges by name.")
parameter = typer.Typer(no_args_is_help=True, help="Runtime parameters, shovels among them.")
limit = typer.Typer(no_args_is_help=True, help="Limits of a vhost or a user.")
definitions = typer.Typer(no_args_is_help=True, help="Everything but messages, as one file.")

Name = Annotated[str, typer.Argument(help="Its name.")]
Tags = Annotated[
    str, typer.Option("--tags", help="administrator, monitoring, policymaker, management.")
]
NewPassword = Annotated[
    str | None, typer.Option("--new-password", help="Asked for where it is not given.")
]
_HIDDEN = "password of the user"


@user.command("set")
@asks
def set_user(
    broker: Broker, output: Output, name: Name, new_password: NewPassword = None, tags: Tags = ""
) -> None:
    """Make a user, or change password and tags."""
    secret = new_password if new_password is not None else _ask_password()
    broker.put(f"/api/users/{in_path(name)}", {"password": secret, "tags": tags})
    output.done(f"user {name} is set")


@user.command("tags")
@asks
def set_tags(
    broker: Broker, output: Output, name: Name, tags: Annotated[str, typer.Argument(help="Tags.")]
) -> None:
    """Change the tags of a user."""
    have = broker.get(f"/api/users/{in_path(name)}")
    body = {key: have[key] for key in ("password_hash", "hashing_algorithm") if key in have}
    broker.put(f"/api/users/{in_path(name)}", {**body, "tags": tags})
    output.done(f"user {name} has tags {tags}")


@user.command("delete")
@asks
def delete_user(broker: Broker, output: Output, name: Name) -> None:
    """Delete a user."""
    broker.delete(f"/api/users/{in_path(name)}")
    output.done(f"user {name} is deleted")


def _ask_password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    found: str = typer.prompt(_HIDDEN, hide_input=True, confirmation_prompt=True)
    return found


Who = Annotated[str, typer.Argument(help="The user.")]
Pattern = Annotated[str, typer.Option(help="A regular expression over names; empty for none.")]


@permission.command("set")
@asks
def set_permission(
    broker: Broker,
    output: Output,
    name: Who,
    configure: Pattern = ".*",
    write: Pattern = ".*",
    read: Pattern = ".*",
    vhost: Vhost = "/",
) -> None:
    """Let a user work in a vhost."""
    body = {"configure": configure, "write": write, "read": read}
    broker.put(f"/api/permissions/{in_path(vhost, name)}", body)
    output.done(f"user {name} may work in vhost {vhost}")


@permission.command("clear")
@asks
def clear_permission(broker: Broker, output: Output, name: Who, vhost: Vhost = "/") -> None:
    """Keep a user out of a vhost."""
    broker.delete(f"/api/permissions/{in_path(vhost, name)}")
    output.done(f"user {name} may no longer work in vhost {vhost}")


@permission.command("set-topic")
@asks
def set_topic_permission(
    broker: Broker,
    output: Output,
    name: Who,
    exchange: Annotated[str, typer.Argument(help="The topic exchange.")],
    write: Pattern = ".*",
    read: Pattern = ".*",
    vhost: Vhost = "/",
) -> None:
    """Limit the routing keys of a user at a topic exchange."""
    body = {"exchange": exchange, "write": write, "read": read}
    broker.put(f"/api/topic-permissions/{in_path(vhost, name)}", body)
    output.done(f"user {name} is limited at {exchange}")


Operator = Annotated[bool, typer.Option("--operator", help="An operator policy.")]


def _policies(is_operator: bool, vhost: str, name: str) -> str:
    kind = "operator-policies" if is_operator else "policies"
    return f"/api/{kind}/{in_path(vhost, name)}"


@policy.command("set")
@asks
def set_policy(
    broker: Broker,
    output: Output,
    name: Name,
    pattern: Annotated[str, typer.Argument(help="A regular expression over names.")],
    definition: Annotated[list[str], typer.Argument(help="KEY=VALUE: message-ttl=60000 …")],
    priority: Annotated[int, typer.Option("--priority", help="The highest one counts.")] = 0,
    apply_to: Annotated[str, typer.Option("--apply-to", help="queues, exchanges, all, …")] = "all",
    operator: Operator = False,
    vhost: Vhost = "/",
) -> None:
    """Set a policy."""
    body = {
        "pattern": pattern,
        "definition": arguments_of(definition),
        "priority": priority,
        "apply-to": apply_to,
    }
    broker.put(_policies(operator, vhost, name), body)
    output.done(f"policy {name} is set")


@policy.command("clear")
@asks
def clear_policy(
    broker: Broker, output: Output, name: Name, operator: Operator = False, vhost: Vhost = "/"
) -> None:
    """Remove a policy."""
    broker.delete(_policies(operator, vhost, name))
    output.done(f"policy {name} is removed")


Component = Annotated[str, typer.Argument(help="shovel, …")]


@parameter.command("set")
@asks
def set_parameter(
    broker: Broker,
    output: Output,
    component: Component,
    name: Name,
    value: Annotated[str, typer.Argument(help="JSON.")],
    vhost: Vhost = "/",
) -> None:
    """Set a runtime parameter."""
    try:
        decoded: Any = json.loads(value)
    except ValueError as fault:
        raise typer.BadParameter(f"the value is not JSON: {fault}") from None
    body = {"component": component, "vhost": vhost, "name": name, "value": decoded}
    broker.put(f"/api/parameters/{in_path(component, vhost, name)}", body)
    output.done(f"parameter {name} of {component} is set")


@parameter.command("clear")
@asks
def clear_parameter(
    broker: Broker, output: Output, component: Component, name: Name, vhost: Vhost = "/"
) -> None:
    """Remove a runtime parameter."""
    broker.delete(f"/api/parameters/{in_path(component, vhost, name)}")
    output.done(f"parameter {name} of {component} is removed")


LimitName = Annotated[str, typer.Argument(help="max-connections, max-queues or max-channels.")]
OfUser = Annotated[str | None, typer.Option("--of-user", help="Of a user, not of a vhost.")]


def _limits(vhost: str, of_user: str | None, name: str) -> str:
    if of_user is not None:
        return f"/api/user-limits/{in_path(of_user, name)}"
    return f"/api/vhost-limits/{in_path(vhost, name)}"


@limit.command("set")
@asks
def set_limit(
    broker: Broker,
    output: Output,
    name: LimitName,
    value: Annotated[int, typer.Argument(help="-1 for none.")],
    of_user: OfUser = None,
    vhost: Vhost = "/",
) -> None:
    """Set a limit."""
    broker.put(_limits(vhost, of_user, name), {"value": value})
    output.done(f"{name} is {value}")


@limit.command("clear")
@asks
def clear_limit(
    broker: Broker, output: Output, name: LimitName, of_user: OfUser = None, vhost: Vhost = "/"
) -> None:
    """Remove a limit."""
    broker.delete(_limits(vhost, of_user, name))
    output.done(f"{name} is removed")


OfVhost = Annotated[str | None, typer.Option("--vhost", help="Of this vhost alone.")]


@definitions.command("export")
@asks
def export(
    broker: Broker,
    output: Output,
    file: Annotated[Path | None, typer.Argument(help="Where to; standard output if none.")] = None,
    vhost: OfVhost = None,
) -> None:
    """Write users, permissions, policies, exchanges, queues and bindings to a file."""
    found = broker.get("/api/definitions" + (f"/{in_path(vhost)}" if vhost is not None else ""))
    if file is None:
        print_json(found)
        return
    file.write_text(json.dumps(found, indent=2) + "\n")
    output.done(f"{file} holds the definitions")


@definitions.command("import")
@asks
def import_(
    broker: Broker,
    output: Output,
    file: Annotated[Path, typer.Argument(help="Definitions of Leveret or RabbitMQ.")],
    vhost: OfVhost = None,
) -> None:
    """Add the definitions of a file to what is there."""
    try:
        found = json.loads(file.read_text())
    except ValueError as fault:
        raise typer.BadParameter(f"{file} is not JSON: {fault}") from None
    broker.post("/api/definitions" + (f"/{in_path(vhost)}" if vhost is not None else ""), found)
    output.done(f"the definitions of {file} are imported")
