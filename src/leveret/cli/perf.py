"""`leveret perf`: load any AMQP broker, watch it, and keep what was measured.

Flags become a `Load`; the generator itself is `leveret.perf`. While it runs, a line a second tells
how it goes; then the figures follow, as text, as JSON and as a chart. Misuse ends with code 2, a
broker that does not play with code 1.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from leveret.cli.perf_progress import progress
from leveret.errors import ConfigError, LeveretError
from leveret.perf import words
from leveret.perf.load import Load, with_uri
from leveret.perf.result import Result
from leveret.perf.run import run
from leveret.perf.story import chart_page, describe, facts

_BURST = 32  # without a rate
_BURSTS_A_SECOND = 1000  # with one: small bursts, as applications send them

_Text = list[str] | None


def _option(default: object, flag: str, text: str, panel: str, **more: Any) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=panel, show_default=bool(default), **more)


_WHO, _WHAT, _WHERE, _HOW, _OUT = "Who", "What", "Where", "How fast and long", "Output"

Uri = Annotated[
    str, _option(1, "--uri", "Broker: amqp(s)://user:password@host:port/vhost.", _WHERE)
]
Ca = Annotated[str, _option(0, "--ca", "FILE with the authorities to trust for TLS.", _WHERE)]
Insecure = Annotated[bool, _option(0, "--insecure", "Trust any TLS certificate.", _WHERE)]
Producers = Annotated[int, _option(1, "--producers", "Connections that publish.", _WHO)]
Consumers = Annotated[int, _option(1, "--consumers", "Connections that consume.", _WHO)]
Processes = Annotated[int, _option(1, "--processes", "Processes for each side.", _WHO)]
Queues = Annotated[int, _option(1, "--queues", "Queues, shared out in turn.", _WHERE)]
Queue = Annotated[str, _option(0, "--queue", "Name of the queue; several get -0, -1 …", _WHERE)]
QueueType = Annotated[str, _option(0, "--queue-type", "classic, quorum or stream.", _WHERE)]
QueueArgs = Annotated[
    _Text, _option(0, "--queue-arg", "KEY=VALUE, an argument of the queues; repeat it.", _WHERE)
]
Predeclared = Annotated[
    bool, _option(0, "--predeclared", "Queue and exchange exist, and stay.", _WHERE)
]
Exchange = Annotated[str, _option(0, "--exchange", "Publish to this exchange.", _WHERE)]
ExchangeType = Annotated[str, _option(1, "--exchange-type", "Its type.", _WHERE)]
RoutingKeys = Annotated[
    _Text, _option(0, "--routing-key", "In turn; k.{1..9} is nine; repeat it.", _WHERE)
]
BindingKeys = Annotated[
    _Text, _option(0, "--binding-key", "Of every queue, else the routing keys; repeat it.", _WHERE)
]
BindingArgs = Annotated[
    _Text, _option(0, "--binding-arg", "KEY=VALUE, for headers exchanges; repeat it.", _WHERE)
]
Headers = Annotated[_Text, _option(0, "--header", "KEY=VALUE, in each message; repeat it.", _WHAT)]
Size = Annotated[str, _option(1, "--size", "Bytes of a body: 16 or 4k; 16,1k in turn.", _WHAT)]
VariableSize = Annotated[
    _Text, _option(0, "--variable-size", "SIZE:SECONDS, over and over; repeat it.", _WHAT)
]
Persistent = Annotated[
    bool, _option(0, "--persistent", "Persistent messages in durable queues.", _WHAT)
]
Mandatory = Annotated[bool, _option(0, "--mandatory", "Have unroutable ones returned.", _WHAT)]
Confirm = Annotated[int, _option(0, "--confirm", "Publisher confirms, so many open at most.", _HOW)]
Prefetch = Annotated[
    int, _option(0, "--prefetch", "Deliveries without ack at most; 0 = auto-ack.", _HOW)
]
AckEvery = Annotated[
    int, _option(0, "--ack-every", "One ack for so many; 0 = half of the prefetch.", _HOW)
]
StreamOffset = Annotated[
    str, _option(1, "--stream-offset", "first, last, next, a number, or an age as 1h.", _HOW)
]
Rate = Annotated[int, _option(0, "--rate", "Messages a second of all producers.", _HOW)]
VariableRate = Annotated[
    _Text, _option(0, "--variable-rate", "RATE:SECONDS, over and over; repeat it.", _HOW)
]
ConsumerRate = Annotated[int, _option(0, "--consumer-rate", "And of all consumers.", _HOW)]
Burst = Annotated[int, _option(0, "--burst", "Messages sent at once; 0 = chosen.", _HOW)]
Seconds = Annotated[float, _option(0, "--seconds", "How long; 0 = until --messages.", _HOW)]
Messages = Annotated[int, _option(0, "--messages", "End after so many.", _HOW)]
Interval = Annotated[float, _option(1, "--interval", "Seconds between two lines.", _OUT)]
JsonFile = Annotated[str, _option(0, "--json", "Write the figures to FILE, - = stdout.", _OUT)]
ChartFile = Annotated[
    Path | None, _option(0, "--chart", "Write a page with charts to FILE.html.", _OUT)
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
    """Load a broker and measure it: rate, confirms, latency.

    Without --seconds and --messages it runs for ten seconds.
    """
    try:
        load = load_of(locals())
    except ConfigError as fault:
        for line in str(fault).splitlines():
            typer.echo(f"leveret perf: {line}", err=True)
        raise typer.Exit(2) from fault
    raise typer.Exit(_perform(load, json_file, chart))


_SECONDS = 10.0  # where no end was asked for
# Flags that are fields of a load as they are.
_SAME = (
    "producers consumers processes queue queues queue_type predeclared exchange exchange_type "
    "persistent mandatory prefetch ack_every stream_offset rate consumer_rate messages"
).split()


def load_of(flags: dict[str, Any]) -> Load:
    """The load that the flags of `perf` mean. Raises ConfigError with every fault it can."""
    rates = words.schedule(flags["variable_rate"] or [], "rate")
    rate = flags["rate"] or max((n for n, _ in rates), default=0)
    load = Load(
        **{name: flags[name] for name in _SAME},
        queue_arguments=words.pairs(flags["queue_arg"] or [], "--queue-arg"),
        routing_keys=words.keys(flags["routing_key"] or []),
        binding_keys=words.keys(flags["binding_key"] or []),
        binding_arguments=words.pairs(flags["binding_arg"] or [], "--binding-arg"),
        headers=words.pairs(flags["header"] or [], "--header"),
        sizes=words.sizes(flags["size"]),
        variable_size=words.schedule(flags["variable_size"] or [], "size"),
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
    return max(1, min(_BURST, rate // max(1, producers) // _BURSTS_A_SECOND))


def _perform(load: Load, json_file: str, chart: Path | None) -> int:
    """Run the load and tell; the exit code."""
    typer.echo(f"{describe(load)} on {load.host}:{load.port}", err=True)
    try:
        with progress(load) as on_row:
            result = run(load, on_row)
    except (LeveretError, OSError) as fault:
        typer.echo(f"leveret perf: {fault}", err=True)
        return 1
    _tell(load, result, json_file, chart)
    return 0


def _tell(load: Load, result: Result, json_file: str, chart: Path | None) -> None:
    for name, value in facts(result):
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
