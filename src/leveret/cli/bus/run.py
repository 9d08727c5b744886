"""Carry out `leveret bus run`: start a webhook, run it until a signal, and stop it gracefully.

Standard output gets two lines: one when the broker lists the consumer, and one at the end.
Standard error gets the log. Both are text, or JSON with `--json`.
"""

import asyncio
import json
from dataclasses import asdict
from typing import Any

import typer

from leveret.bus import fanout, topic
from leveret.bus.health_port import HealthPort
from leveret.bus.topology import Layout, QueueType
from leveret.bus.webhook.webhook import Webhook, run_until_stopped
from leveret.cli.bus.options import RunOptions, silence_client_log, stop_on_signal
from leveret.runtime import logs


def run(options: RunOptions) -> None:
    """Post messages until SIGTERM or Ctrl+C."""
    logs.configure("info", logs.JSON if options.as_json else logs.TEXT)
    silence_client_log()
    asyncio.run(_serve(options))


def make_layout(options: RunOptions) -> Layout:
    """Return the layout that the options describe."""
    kind = topic if options.is_topic else fanout
    delay_s = kind.RETRY_DELAY_S if options.retry_delay_s is None else options.retry_delay_s
    retries_max = kind.RETRIES_MAX if options.max_retries is None else options.max_retries
    if not options.is_topic:
        if options.exchange or options.routing_keys:
            raise ValueError("--exchange and --routing-key need --topology topic")
        return fanout.layout(options.service, retry_delay_s=delay_s, retries_max=retries_max)
    return topic.layout(
        options.service,
        exchange=options.exchange,
        routing_keys=options.routing_keys,
        queue_type=QueueType(options.queue_type),
        retry_delay_s=delay_s,
        retries_max=retries_max,
    )


async def _serve(options: RunOptions) -> None:
    layout = make_layout(options)
    webhook = Webhook(
        options.amqp_urls,
        layout,
        options.target_url,
        concurrency=options.concurrency,
        timeout_s=options.timeout_s,
        headers=options.headers,
    )
    stop = asyncio.Event()
    stop_on_signal(stop.set)
    port = HealthPort(lambda: _status(webhook, layout), webhook.bus.metrics)
    started: dict[str, Any] = {"service": layout.service, "queue": layout.queue}
    if options.health_port is not None:
        started["health"] = await port.start(options.health_host, options.health_port)
    try:
        await _start(webhook, stop)
        if not stop.is_set():
            _print_event(options, "ready", {**started, "url": options.target_url})
        await run_until_stopped(webhook, stop)
    finally:
        await port.stop()
    _print_event(options, "ended", {**started, **asdict(webhook.counts)})


async def _start(webhook: Webhook, stop: asyncio.Event) -> None:
    """Start the webhook, or return if a signal arrives before the broker is reachable."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(webhook.start(), name="start")
    stopping = loop.create_task(stop.wait(), name="stop")
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        await starting
    else:
        starting.cancel()


async def _status(webhook: Webhook, layout: Layout) -> tuple[bool, dict[str, Any]]:
    health = await webhook.health()
    status: dict[str, Any] = {"service": layout.service, "queue": layout.queue}
    since_ms = None if health.since_s is None else round(health.since_s * 1000)
    status.update(is_consuming=health.is_consuming, since_ms=since_ms, reason=health.reason)
    return health.is_consuming, {**status, **asdict(webhook.counts)}


def _print_event(options: RunOptions, event: str, facts: dict[str, Any]) -> None:
    if options.as_json:
        typer.echo(json.dumps({"event": event, **facts}))
    else:
        words = " ".join(f"{name}={value}" for name, value in facts.items())
        typer.echo(f"leveret bus {event} {words}")
