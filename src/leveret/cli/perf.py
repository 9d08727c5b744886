"""`leveret perf`: load an AMQP broker and print the measured rates and latencies.

The flags become a `Load`, which `leveret.perf` runs. A progress line appears each second, then the
results as text, and optionally as JSON and as a chart. The exit code is 2 for wrong flags and 1
if the broker fails.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from leveret.cli.perf_progress import progress
from leveret.errors import ConfigError, LeveretError
from leveret.perf import flag_values
from leveret.perf.load import Load, with_uri
from leveret.perf.report import chart_page, describe_load, result_facts
from leveret.perf.result import Result
from leveret.perf.run import run

_BURST = 32  # messages, if no rate is set
_BURSTS_PER_S = 1000  # if a rate is set: small bursts, as applications send them

_Text = list[str] | None


def _option(default: object, flag: str, text: str, panel: str, **more: Any) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=panel, show_default=bool(default), **more)


_CLIENTS, _MESSAGES, _BROKER = "Clients", "Messages", "Broker, queues and exchange"
_SPEED, _OUTPUT = "Speed and duration", "Output"

Uri = Annotated[
    str, _option(1, "--uri", "URI of the broker: amqp(s)://user:password@host:port/vhost.", _BROKER)
]
Ca = Annotated[str, _option(0, "--ca", "FILE with the CA certificates to trust for TLS.", _BROKER)]
Insecure = Annotated[bool, _option(0, "--insecure", "Trust any TLS certificate.", _BROKER)]
Producers = Annotated[
    int, _option(1, "--producers", "Number of connections that publish.", _CLIENTS)
]
Consumers = Annotated[
    int, _option(1, "--consumers", "Number of connections that consume.", _CLIENTS)
]
Processes = Annotated[
    int,
    _option(1, "--processes", "Number of processes for producers, and for consumers.", _CLIENTS),
]
Queues = Annotated[
    int, _option(1, "--queues", "Number of queues, assigned to clients in turn.", _BROKER)
]
Queue = Annotated[
    str,
    _option(0, "--queue", "Name of the queue; with several queues, -0, -1 … is added.", _BROKER),
]
QueueType = Annotated[str, _option(0, "--queue-type", "classic, quorum or stream.", _BROKER)]
QueueArgs = Annotated[
    _Text, _option(0, "--queue-arg", "Queue argument KEY=VALUE. Repeatable.", _BROKER)
]
Predeclared = Annotated[
    bool,
    _option(0, "--predeclared", "Use existing queues and exchange; do not delete them.", _BROKER),
]
Exchange = Annotated[
    str,
    _option(0, "--exchange", "Publish to this exchange. Default: directly to the queues.", _BROKER),
]
ExchangeType = Annotated[str, _option(1, "--exchange-type", "Type of the exchange.", _BROKER)]
RoutingKeys = Annotated[
    _Text,
    _option(
        0,
        "--routing-key",
        "Routing keys, used in turn; k.{1..9} is nine keys. Repeatable.",
        _BROKER,
    ),
]
BindingKeys = Annotated[
    _Text,
    _option(
        0,
        "--binding-key",
        "Binding key of every queue. Default: the routing keys. Repeatable.",
        _BROKER,
    ),
]
BindingArgs = Annotated[
    _Text,
    _option(
        0,
        "--binding-arg",
        "Binding argument KEY=VALUE, for headers exchanges. Repeatable.",
        _BROKER,
    ),
]
Headers = Annotated[
    _Text, _option(0, "--header", "Message header KEY=VALUE. Repeatable.", _MESSAGES)
]
Size = Annotated[
    str, _option(1, "--size", "Body size in bytes: 16 or 4k; 16,1k alternates.", _MESSAGES)
]
VariableSize = Annotated[
    _Text,
    _option(
        0,
        "--variable-size",
        "SIZE:SECONDS, a repeating schedule of body sizes. Repeatable.",
        _MESSAGES,
    ),
]
Persistent = Annotated[
    bool, _option(0, "--persistent", "Publish persistent messages to durable queues.", _MESSAGES)
]
Mandatory = Annotated[
    bool, _option(0, "--mandatory", "Have unroutable messages returned.", _MESSAGES)
]
Confirm = Annotated[
    int,
    _option(0, "--confirm", "Use publisher confirms, with at most N unconfirmed messages.", _SPEED),
]
Prefetch = Annotated[
    int,
    _option(0, "--prefetch", "Maximum number of unacknowledged deliveries; 0 = auto-ack.", _SPEED),
]
AckEvery = Annotated[
    int,
    _option(0, "--ack-every", "Acknowledge every N deliveries; 0 = half of the prefetch.", _SPEED),
]
StreamOffset = Annotated[
    str,
    _option(
        1,
        "--stream-offset",
        "Where to start in a stream: first, last, next, an offset, or an age such as 1h.",
        _SPEED,
    ),
]
Rate = Annotated[
    int,
    _option(0, "--rate", "Messages per second, of all producers together; 0 = no limit.", _SPEED),
]
VariableRate = Annotated[
    _Text,
    _option(
        0, "--variable-rate", "RATE:SECONDS, a repeating schedule of rates. Repeatable.", _SPEED
    ),
]
ConsumerRate = Annotated[
    int,
    _option(
        0,
        "--consumer-rate",
        "Messages per second, of all consumers together; 0 = no limit.",
        _SPEED,
    ),
]
Burst = Annotated[int, _option(0, "--burst", "Messages sent in one write; 0 = automatic.", _SPEED)]
Seconds = Annotated[
    float, _option(0, "--seconds", "Duration of the run; 0 = until --messages are sent.", _SPEED)
]
Messages = Annotated[int, _option(0, "--messages", "Stop after this number of messages.", _SPEED)]
Interval = Annotated[float, _option(1, "--interval", "Seconds between progress lines.", _OUTPUT)]
JsonFile = Annotated[
    str, _option(0, "--json", "Write the results to FILE as JSON; - = stdout.", _OUTPUT)
]
ChartFile = Annotated[
    Path | None, _option(0, "--chart", "Write a page with charts to FILE.html.", _OUTPUT)
]


def perf(
    uri: Uri = "amqp://guest:guest@127.0.0.1:5672",
    ca: Ca = "",
    insecure: Insecure = False,
    producers: Producers = 1,
    consumers: Consumers = 1,
    processes: Processes = 1,
    queue: Queue = "",
    queues: Queues = 1,
    queue_type: QueueType = "",
    queue_arg: QueueArgs = None,
    predeclared: Predeclared = False,
    exchange: Exchange = "",
    exchange_type: ExchangeType = "direct",
    routing_key: RoutingKeys = None,
    binding_key: BindingKeys = None,
    binding_arg: BindingArgs = None,
    size: Size = "16",
    variable_size: VariableSize = None,
    header: Headers = None,
    persistent: Persistent = False,
    mandatory: Mandatory = False,
    confirm: Confirm = 0,
    prefetch: Prefetch = 0,
    ack_every: AckEvery = 0,
    stream_offset: StreamOffset = "next",
    rate: Rate = 0,
    variable_rate: VariableRate = None,
    consumer_rate: ConsumerRate = 0,
    burst: Burst = 0,
    seconds: Seconds = 0.0,
    messages: Messages = 0,
    interval: Interval = 1.0,
    json_file: JsonFile = "",
    chart: ChartFile = None,
) -> None:
    """Load a broker and measure message rates, confirms and latency.

    Runs for ten seconds if neither --seconds nor --messages is given.
    """
    try:
        load = load_from_flags(locals())
    except ConfigError as fault:
        for line in str(fault).splitlines():
            typer.echo(f"leveret perf: {line}", err=True)
        raise typer.Exit(2) from fault
    raise typer.Exit(_run_load(load, json_file, chart))


_SECONDS = 10.0  # default duration
# Flags that are copied to the field of the same name.
_COPIED_FLAGS = (
    "producers consumers processes queue queues queue_type predeclared exchange exchange_type "
    "persistent mandatory prefetch ack_every stream_offset rate consumer_rate messages"
).split()


def load_from_flags(flags: dict[str, Any]) -> Load:
    """Return the load that the flags describe. Raise ConfigError with all errors found."""
    rates = flag_values.parse_schedule(flags["variable_rate"] or [], "rate")
    rate = flags["rate"] or max((n for n, _ in rates), default=0)
    load = Load(
        **{name: flags[name] for name in _COPIED_FLAGS},
        queue_arguments=flag_values.parse_pairs(flags["queue_arg"] or [], "--queue-arg"),
        routing_keys=flag_values.parse_keys(flags["routing_key"] or []),
        binding_keys=flag_values.parse_keys(flags["binding_key"] or []),
        binding_arguments=flag_values.parse_pairs(flags["binding_arg"] or [], "--binding-arg"),
        headers=flag_values.parse_pairs(flags["header"] or [], "--header"),
        sizes=flag_values.parse_sizes(flags["size"]),
        variable_size=flag_values.parse_schedule(flags["variable_size"] or [], "size"),
        variable_rate=rates,
        confirm_window=flags["confirm"],
        seconds=flags["seconds"] or (0.0 if flags["messages"] else _SECONDS),
        burst=flags["burst"] or _burst(rate, flags["producers"]),
        interval_s=flags["interval"],
        tls_verify=not flags["insecure"],
        tls_ca=flags["ca"],
    )
    load = with_uri(load, flags["uri"])
    load.check()
    return load


def _burst(rate: int, producers: int) -> int:
    if not rate:
        return _BURST
    return max(1, min(_BURST, rate // max(1, producers) // _BURSTS_PER_S))


def _run_load(load: Load, json_file: str, chart: Path | None) -> int:
    """Run the load, print the results and return the exit code."""
    typer.echo(f"{describe_load(load)} on {load.host}:{load.port}", err=True)
    try:
        with progress(load) as on_row:
            result = run(load, on_row)
    except (LeveretError, OSError) as fault:
        typer.echo(f"leveret perf: {fault}", err=True)
        return 1
    _print_results(load, result, json_file, chart)
    return 0


def _print_results(load: Load, result: Result, json_file: str, chart: Path | None) -> None:
    for name, value in result_facts(result):
        typer.echo(f"{name:<16} {value}", err=json_file == "-")
    if json_file:
        shown = replace(load, password="***")
        figures = {"load": vars(shown), **result.to_json()}
        text = json.dumps(figures, indent=2) + "\n"
        if json_file == "-":
            typer.echo(text, nl=False)
        else:
            Path(json_file).write_text(text)
    if chart is not None:
        chart.write_text(chart_page(load, result))
        typer.echo(f"{'chart':<16} {chart}", err=True)
